#include "model/weights/tensor_shapes.h"

#include "model/files/bad_file.h"
#include "model/weights/layer_plan.h"

#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <set>
#include <vector>

namespace entrodraft::model {
namespace {

using Visit = std::function<void(const std::string& name, const Shape& shape, StoredTensor::Content content)>;

void visit_stored(const TensorPlan& plan, const Visit& visit) {
    for (const auto& stored : plan.stored) {
        const StoredTensor& tensor = *stored;
        const auto bias_content = StoredTensor::Content::vector;
        visit(tensor.names.weight, tensor.shape, tensor.content);
        if (!tensor.names.bias.empty()) visit(tensor.names.bias, tensor.bias_shape, bias_content);
        if (!tensor.names.second_bias.empty()) visit(tensor.names.second_bias, tensor.bias_shape, bias_content);
    }
}

// Visits all tensors that the config requires, one by one.
void visit_model(const ModelConfig& config, const Checkpoint& checkpoint, const Visit& visit) {
    const ModelNames names = names_of(config, checkpoint);
    const RankShard whole = shard_of(config, 0, 1);
    visit_stored(plan_outer(config, names, whole), visit);
    for (int layer = 0; layer < config.n_layers; ++layer) {
        visit_stored(plan_layer(config, names, layer, whole), visit);
        const int n_experts = !config.has_experts(layer) ? 0 : names.has_joint_experts ? 1 : config.experts.n_experts;
        for (int expert = 0; expert < n_experts; ++expert)
            visit_stored(plan_expert(config, names, layer, expert, whole), visit);
    }
}

// Returns the key of a tensor's random weights.
std::uint64_t key_of(std::uint64_t seed, const std::string& tensor) {
    std::uint64_t key = mixed_word(seed);
    for (const char letter : tensor)
        key = mixed_word(key ^ static_cast<unsigned char>(letter));
    return key;
}

// Visits the tensors of the model and, if it has one, of its encoder.
void visit_all(const ModelConfig& config, const Checkpoint& checkpoint, const Visit& visit) {
    visit_model(config, checkpoint, visit);
    if (config.has_encoder()) visit_model(encoder_of(config), checkpoint, visit);
}

// A vector may be stored as a matrix of one row.
bool is_shape(const Shape& stored, const Shape& shape) {
    return stored == shape || (shape.size() == 1 && stored == Shape{1, shape.front()});
}

} // namespace

void check_shapes(const ModelConfig& config, const Checkpoint& checkpoint) {
    const ModelNames names = names_of(config, checkpoint);
    if (!config.tied_embeddings && !checkpoint.has(names.head.weight)) {
        throw BadFile(*checkpoint.tensor(names.embedding.weight).file + ": tensor " + in_quotes(names.head.weight) +
                      " is missing; if the head is the embedding, say \"tie_word_embeddings\": true in config.json");
    }
    std::set<std::string> known;
    // With an absurd number of layers in the config, the check ends at the first layer that the file lacks.
    visit_all(config, checkpoint, [&](const std::string& name, const Shape& shape, StoredTensor::Content) {
        const TensorView& tensor = checkpoint.tensor(name);
        const std::string where = *tensor.file + ": tensor " + in_quotes(tensor.name);
        if (!is_shape(tensor.shape, shape)) {
            throw BadFile(fmt::format("{} has shape [{}], but config.json calls for [{}]", where,
                                      fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
        }
        if (tensor.type == DiskType::other) {
            throw BadFile(where + " is of type " + tensor.dtype + "; supported: F32, F16, BF16");
        }
        known.insert(name);
    });
    for (const auto& [name, tensor] : checkpoint.tensors()) {
        if (known.contains(name) || tensor.is_part || names.ignores(name)) continue;
        throw BadFile(fmt::format("{}: tensor {} has no place in the {} model of {} layers that config.json describes",
                                  *tensor.file, in_quotes(name), config.family, config.n_layers));
    }
}

Checkpoint random_checkpoint(const ModelConfig& config, std::uint64_t seed) {
    std::vector<TensorView> tensors;
    visit_all(config, Checkpoint(), [&](const std::string& name, const Shape& shape, StoredTensor::Content content) {
        TensorView tensor;
        tensor.name = name;
        tensor.dtype = "random";
        tensor.type = DiskType::generated;
        tensor.shape = shape;
        if (content == StoredTensor::Content::matrix) tensor.generated = {true, key_of(seed, name), 0};
        if (content == StoredTensor::Content::plain_norm) tensor.generated.value = 1;
        if (content == StoredTensor::Content::norm) tensor.generated.value = 1 - config.norm_offset;
        tensors.push_back(std::move(tensor));
    });
    return Checkpoint::generated(std::move(tensors), bytes_of(config.stored_type));
}

} // namespace entrodraft::model
