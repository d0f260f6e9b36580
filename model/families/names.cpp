#include "model/families/names.h"

#include "model/checkpoint/bad_file.h"
#include "model/cpu/packing.h"
#include "model/families/families.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <set>
#include <vector>

namespace entrodraft::model {
namespace {

using Shape = std::vector<std::int64_t>;

// Checks tensors one by one and remembers which were asked for.
class ShapeCheck {
  public:
    ShapeCheck(const Checkpoint& checkpoint, bool transposed) : checkpoint_(checkpoint), transposed_(transposed) {}

    void expect(const std::string& name, const Shape& shape) {
        if (name.empty()) return;
        const TensorView& tensor = checkpoint_.tensor(name);
        const std::string where = *tensor.file + ": tensor " + in_quotes(name);
        if (tensor.shape != shape) {
            throw BadFile(fmt::format("{} has shape [{}], but config.json calls for [{}]", where,
                                      fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
        }
        if (tensor.type == DiskType::other) {
            throw BadFile(where + " is of type " + tensor.dtype + "; supported: F32, F16, BF16");
        }
        known_.insert(name);
    }
    void expect_norm(const TensorNames& names, std::int64_t width) {
        expect(names.weight, {width});
        expect(names.bias, {width});
    }
    // A matrix of a layer, [out, in] or the other way round.
    void expect_matrix(const TensorNames& names, std::int64_t out, std::int64_t in) {
        expect(names.weight, transposed_ ? Shape{in, out} : Shape{out, in});
        expect(names.bias, {out});
    }
    bool knows(const std::string& name) const { return known_.contains(name); }

  private:
    const Checkpoint& checkpoint_;
    bool transposed_;
    std::set<std::string> known_;
};

void expect_layer(const ModelConfig& config, const LayerNames& names, ShapeCheck& check) {
    const std::int64_t hidden = config.hidden_size, inner = config.intermediate_size, dim = config.head_dim;
    const std::int64_t query = config.n_heads * dim, key = config.n_kv_heads * dim;
    for (const TensorNames* norm :
         {&names.attention_norm, &names.mlp_norm, &names.after_attention_norm, &names.after_mlp_norm})
        check.expect_norm(*norm, hidden);
    check.expect_matrix(names.query, query, hidden);
    check.expect_matrix(names.key, key, hidden);
    check.expect_matrix(names.value, key, hidden);
    check.expect_matrix(names.qkv, query + 2 * key, hidden);
    check.expect_norm(names.query_norm, dim);
    check.expect_norm(names.key_norm, dim);
    check.expect_matrix(names.output, hidden, query);
    check.expect_matrix(names.gate, inner, hidden);
    check.expect_matrix(names.up, inner, hidden);
    check.expect_matrix(names.gate_up, 2 * inner, hidden);
    check.expect_matrix(names.down, hidden, inner);
}

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

TensorNames tensor_names(const std::string& prefix, std::string_view stem, bool has_bias) {
    if (stem.empty()) return {};
    const std::string name = prefix + std::string(stem);
    return {name + ".weight", has_bias ? name + ".bias" : ""};
}

LayerNames layer_names(const ModelConfig& config, const LayerStems& stems, const std::string& prefix) {
    const auto norm = [&](std::string_view stem) { return tensor_names(prefix, stem, config.norm == Norm::layer); };
    const auto qkv = [&](std::string_view stem) { return tensor_names(prefix, stem, config.qkv_bias); };
    const auto mlp = [&](std::string_view stem) { return tensor_names(prefix, stem, config.mlp_bias); };
    return {.attention_norm = norm(stems.attention_norm),
            .mlp_norm = norm(stems.mlp_norm),
            .after_attention_norm = norm(stems.after_attention_norm),
            .after_mlp_norm = norm(stems.after_mlp_norm),
            .query = qkv(stems.query),
            .key = qkv(stems.key),
            .value = qkv(stems.value),
            .qkv = qkv(stems.qkv),
            .query_norm = tensor_names(prefix, stems.query_norm, false),
            .key_norm = tensor_names(prefix, stems.key_norm, false),
            .output = tensor_names(prefix, stems.output, config.output_bias),
            .gate = mlp(stems.gate),
            .up = mlp(stems.up),
            .gate_up = mlp(stems.gate_up),
            .down = mlp(stems.down)};
}

ModelNames names_with_prefix(const ModelConfig& config, const TensorStems& stems, const std::string& prefix) {
    ModelNames names;
    names.embedding = tensor_names(prefix, stems.embedding, false);
    names.positions = tensor_names(prefix, stems.positions, false);
    names.project_in = tensor_names(prefix, stems.project_in, false);
    names.project_out = tensor_names(prefix, stems.project_out, false);
    names.final_norm = tensor_names(prefix, stems.final_norm, config.norm == Norm::layer);
    names.head = tensor_names("", stems.head, config.head_bias);
    names.qkv = stems.qkv;
    names.transposed = stems.transposed;
    names.layer = [config, prefix, stems](int index) {
        return layer_names(config, stems.layer, fmt::format("{}{}.{}.", prefix, stems.layers, index));
    };
    names.ignores = [endings = stems.ignored](std::string_view name) {
        return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
    };
    return names;
}

} // namespace

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
        if (!checkpoint.has(with_prefix.embedding.weight) && !checkpoint.has(with_prefix.layer(0).output.weight))
            continue;
        names = std::move(with_prefix);
        break;
    }
    if (!config.tied_embeddings) return names;
    // Files of tied models may hold both, or only one of the two.
    const std::string head = names.head.weight;
    if (!checkpoint.has(names.embedding.weight) && checkpoint.has(head)) names.embedding.weight = head;
    names.head = {names.embedding.weight, names.head.bias};
    names.ignores = [head, others = names.ignores](std::string_view name) { return name == head || others(name); };
    return names;
}

void check_shapes(const ModelConfig& config, const Checkpoint& checkpoint) {
    const ModelNames names = names_of(config, checkpoint);
    ShapeCheck check(checkpoint, names.transposed);
    check.expect(names.embedding.weight, {config.vocab_size, config.embedding_size});
    check.expect(names.positions.weight, {config.max_positions + config.position_offset, config.hidden_size});
    check.expect(names.project_in.weight, {config.hidden_size, config.embedding_size});
    check.expect(names.project_out.weight, {config.embedding_size, config.hidden_size});
    check.expect_norm(names.final_norm, config.hidden_size);
    if (!config.tied_embeddings && !checkpoint.has(names.head.weight)) {
        throw BadFile(*checkpoint.tensor(names.embedding.weight).file + ": tensor " + in_quotes(names.head.weight) +
                      " is missing; if the head is the embedding, say \"tie_word_embeddings\": true in config.json");
    }
    check.expect(names.head.weight, {config.vocab_size, config.embedding_size});
    check.expect(names.head.bias, {config.vocab_size});
    // A config with absurdly many layers ends at the first that the file lacks.
    for (int i = 0; i < config.n_layers; ++i)
        expect_layer(config, names.layer(i), check);

    for (const auto& [name, tensor] : checkpoint.tensors()) {
        if (check.knows(name) || names.ignores(name)) continue;
        throw BadFile(fmt::format("{}: tensor {} has no place in the {} model of {} layers that config.json describes",
                                  *tensor.file, in_quotes(name), config.family, config.n_layers));
    }
}

} // namespace entrodraft::model
