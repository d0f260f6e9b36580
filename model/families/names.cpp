#include "model/families/names.h"

#include "model/families/families.h"
#include "model/files/tensor_values.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <vector>

namespace entrodraft::model {
namespace {

std::int64_t count_elements(const TensorView& tensor) {
    std::int64_t count = 1;
    for (const std::int64_t dim : tensor.shape)
        count *= dim;
    return count;
}

bool are_equal_tensors(const TensorView& a, const TensorView& b) {
    if (a.shape != b.shape) return false;
    if (a.dtype == b.dtype && a.bytes.size() == b.bytes.size())
        return a.bytes.data() == b.bytes.data() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
    if (a.type == DiskType::other || b.type == DiskType::other) return false;
    constexpr std::int64_t kChunk = 4096;
    std::vector<float> of_a(kChunk), of_b(kChunk);
    const std::int64_t count = count_elements(a);
    for (std::int64_t at = 0; at < count; at += kChunk) {
        const dist::Slice chunk = {at, std::min(count, at + kChunk)};
        read_floats(a, chunk, of_a.data());
        read_floats(b, chunk, of_b.data());
        if (!std::equal(of_a.begin(), of_a.begin() + chunk.size(), of_b.begin())) return false;
    }
    return true;
}

// Returns a test for the names that a file may hold although nothing reads them.
std::function<bool(std::string_view)> ignored_names(const ModelConfig& config, const TensorStems& stems,
                                                    const std::string& prefix) {
    std::vector<std::string> ignored(stems.ignored.begin(), stems.ignored.end());
    const std::string of_layers = fmt::format("{}{}.", prefix, stems.layers);
    const int n_layers = stems.ignores_further_layers ? config.n_layers : std::numeric_limits<int>::max();
    return [ignored, of_layers, n_layers](std::string_view name) {
        int layer = -1;
        if (name.starts_with(of_layers))
            std::from_chars(name.data() + of_layers.size(), name.data() + name.size(), layer);
        return layer >= n_layers || std::ranges::any_of(ignored, [&](const std::string& part) {
                   return name.starts_with(part) || name.ends_with(part);
               });
    };
}

ModelNames names_with_prefix(const ModelConfig& config, const TensorStems& stems, const std::string& prefix) {
    ModelNames names;
    names.stems = stems;
    names.prefix = prefix;
    names.embedding = tensor_names(prefix, stems.embedding, false);
    if (config.positions == Positions::learned || config.positions == Positions::sinusoidal)
        names.positions = tensor_names(prefix, stems.positions, false);
    if (config.final_norm) names.final_norm = tensor_names(prefix, stems.final_norm, norm_has_bias(config));
    names.head = tensor_names("", stems.head, config.head_bias);
    if (config.head_bias && !stems.head_bias.empty()) names.head.bias = stems.head_bias;
    const bool is_mxfp4 = config.quantization && config.quantization->form == QuantizedForm::mxfp4;
    names.transposed_experts = stems.transposed_experts && !is_mxfp4;
    names.ignores = ignored_names(config, stems, prefix);
    return names;
}

// A file has one tensor for all experts of a layer, or tensors of each expert. Without a file, each expert has its own,
// if the family has that form.
bool has_joint_experts(const ModelConfig& config, const Checkpoint& checkpoint, const ModelNames& names) {
    if (names.stems.layer.expert_down.empty()) return false;
    int first = 0;
    while (first < config.n_layers && !config.has_experts(first))
        ++first;
    if (first == config.n_layers || names.stems.expert.down.empty()) return true;
    return checkpoint.has(names.layer_prefix(first) + std::string(names.stems.layer.expert_down));
}

} // namespace

TensorNames tensor_names(const std::string& prefix, std::string_view stem, bool has_bias) {
    if (stem.empty()) return {};
    const std::string name = prefix + std::string(stem);
    return {name + ".weight", has_bias ? name + ".bias" : ""};
}

bool norm_has_bias(const ModelConfig& config) {
    return config.norm == Norm::layer && config.norm_bias;
}

std::string ModelNames::layer_prefix(int layer) const {
    return fmt::format("{}{}.{}.", prefix, stems.layers, layer);
}

std::string ModelNames::expert_prefix(int layer, int expert) const {
    return fmt::format("{}{}.{}.", layer_prefix(layer), stems.experts, expert);
}

bool untie_stored_head(ModelConfig& config, const Checkpoint& checkpoint) {
    if (!config.tied_embeddings) return false;
    ModelConfig untied = config;
    untied.tied_embeddings = false;
    const ModelNames names = names_of(untied, checkpoint);
    if (!checkpoint.has(names.embedding.weight) || !checkpoint.has(names.head.weight) ||
        are_equal_tensors(checkpoint.tensor(names.embedding.weight), checkpoint.tensor(names.head.weight)))
        return false;
    config = untied;
    return true;
}

ModelNames names_of(const ModelConfig& config, const Checkpoint& checkpoint) {
    const FamilyDescription& family = describe(config.family);
    const TensorStems stems = family.stems(config);
    ModelNames names = names_with_prefix(config, stems, family.prefixes.front());
    for (const std::string& prefix : family.prefixes) {
        ModelNames with_prefix = names_with_prefix(config, stems, prefix);
        for (const std::string_view alias : stems.embedding_aliases) {
            const TensorNames other = tensor_names(prefix, alias, false);
            if (!checkpoint.has(with_prefix.embedding.weight) && checkpoint.has(other.weight))
                with_prefix.embedding = other;
        }
        if (!checkpoint.has(with_prefix.embedding.weight) &&
            !checkpoint.has(with_prefix.layer_prefix(0) + std::string(stems.layer.output) + ".weight"))
            continue;
        names = std::move(with_prefix);
        break;
    }
    // A computed table may be stored, in any precision. It is then used, as in transformers.
    if (config.positions == Positions::sinusoidal && !checkpoint.has(names.positions.weight)) names.positions = {};
    names.has_joint_experts = has_joint_experts(config, checkpoint, names);
    if (!stems.head_bias.empty() && !checkpoint.tensors().empty() && !checkpoint.has(names.head.bias))
        names.head.bias.clear();
    if (!config.tied_embeddings) return names;
    // Files of tied models may hold both, or only one of the two.
    const std::string head = names.head.weight;
    if (!checkpoint.has(names.embedding.weight) && checkpoint.has(head)) names.embedding.weight = head;
    names.head = {names.embedding.weight, names.head.bias};
    names.ignores = [head, others = names.ignores](std::string_view name) { return name == head || others(name); };
    return names;
}

} // namespace entrodraft::model
