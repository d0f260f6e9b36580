#include "model/families/names.h"

#include "model/checkpoint/bad_file.h"
#include "model/cpu/packing.h"
#include "model/families/families.h"
#include "model/rank_shard.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <set>
#include <vector>

namespace entrodraft::model {
namespace {

using Shape = std::vector<std::int64_t>;

enum class TensorRole { matrix, norm, plain_norm, bias }; // a plain norm is stored without the offset

// Of all tensors that the config calls for, one by one.
class TensorVisit {
  public:
    using Function = std::function<void(const std::string& name, const Shape& shape, TensorRole role)>;
    TensorVisit(const ModelConfig& config, const ModelNames& names, Function visit)
        : config_(config), names_(names), visit_(std::move(visit)) {}

    void all() const {
        const std::int64_t hidden = config_.hidden_size, embedding = config_.embedding_size;
        if (config_.has_embedding()) one(names_.embedding.weight, {config_.vocab_size, embedding}, TensorRole::matrix);
        one(names_.positions.weight, {config_.max_positions + config_.position_offset, hidden}, TensorRole::matrix);
        norm(names_.embedding_norm, hidden);
        one(names_.relative_bias.weight, {config_.relative.n_buckets, config_.n_heads}, TensorRole::matrix);
        one(names_.project_in.weight, {hidden, embedding}, TensorRole::matrix);
        one(names_.project_out.weight, {embedding, hidden}, TensorRole::matrix);
        norm(names_.final_norm, hidden);
        if (config_.has_head()) one(names_.head.weight, {config_.n_outputs(), embedding}, TensorRole::matrix);
        one(names_.head.bias, {config_.n_outputs()}, TensorRole::bias);
        fusion();
        for (int i = 0; i < config_.n_layers; ++i) {
            const LayerNames names = names_.layer(i);
            layer(names, attention_input_size(config_, i));
            if (config_.has_experts(i)) experts(names, i);
        }
    }

  private:
    void one(const std::string& name, const Shape& shape, TensorRole role) const {
        if (!name.empty()) visit_(name, shape, role);
    }
    void norm(const TensorNames& names, std::int64_t width) const {
        one(names.weight, {width}, TensorRole::norm);
        one(names.bias, {width}, TensorRole::bias);
    }
    // A matrix of a layer, [out, in] or the other way round.
    void matrix(const TensorNames& names, std::int64_t out, std::int64_t in) const {
        one(names.weight, names_.transposed ? Shape{in, out} : Shape{out, in}, TensorRole::matrix);
        one(names.bias, {out}, TensorRole::bias);
        one(names.second_bias, {out}, TensorRole::bias);
    }
    void fusion() const {
        const FusionNames& names = names_.fusion;
        const std::int64_t hidden = config_.hidden_size;
        for (const TensorNames& each : names.feature_norms)
            norm(each, config_.fusion.feature_norm_size);
        for (const TensorNames& each : names.feature_projections)
            matrix(each, hidden, config_.fusion.feature_numbers());
        matrix(names.linear, hidden, config_.fusion.joined_size(config_.hidden_size));
        matrix(names.skip, hidden, config_.fusion.joined_size(config_.hidden_size));
        norm(names.sum_norm, hidden);
        norm(names.cell_norm, hidden);
        norm(names.embedding_norm, hidden);
        norm(names.state_norm, hidden);
        for (std::size_t i = 0; i < names.cells.size(); ++i)
            matrix(names.cells[i], 4 * hidden, i == 0 ? config_.fusion.joined_size(config_.hidden_size) : hidden);
        const std::int64_t inner = config_.fusion.residual_size > 0 ? config_.fusion.residual_size : hidden;
        for (const TensorNames& each : names.residual_blocks)
            matrix(each, inner, hidden);
        for (const TensorNames& each : names.residual_outputs)
            matrix(each, hidden, inner);
    }
    void layer(const LayerNames& names, std::int64_t attention_input) const {
        const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size, dim = config_.head_dim;
        const std::int64_t query = config_.n_heads * dim, key = config_.n_kv_heads * dim;
        const std::int64_t attended = config_.n_heads * config_.attended_dim();
        for (const TensorNames* each : {&names.attention_norm, &names.mlp_norm, &names.after_attention_norm,
                                        &names.after_mlp_norm, &names.cross_norm})
            norm(*each, hidden);
        for (const TensorNames* each : {&names.cross_query, &names.cross_key, &names.cross_value})
            matrix(*each, query, hidden);
        matrix(names.cross_output, hidden, query);
        const LatentConfig& latent = config_.latent;
        matrix(names.query, config_.gated_attention ? 2 * query : query,
               latent.query_rank > 0 ? latent.query_rank : attention_input);
        matrix(names.key, key, attention_input);
        matrix(names.value, key, attention_input);
        matrix(names.qkv, query + 2 * key, attention_input);
        const bool is_of_row = config_.query_key_norm == QueryKeyNorm::row;
        norm(names.query_norm, is_of_row ? query : dim);
        norm(names.key_norm, is_of_row ? key : dim);
        one(names.sinks.weight, {config_.n_heads}, TensorRole::bias);
        matrix(names.query_down, latent.query_rank, hidden);
        norm(names.query_down_norm, latent.query_rank);
        matrix(names.key_value_down, latent.rank + latent.rotated_dim, hidden);
        norm(names.key_value_down_norm, latent.rank);
        matrix(names.key_value_up, config_.n_heads * (latent.plain_dim + latent.value_dim), latent.rank);
        matrix(names.output, hidden, attended);
        linear_attention(names);
        matrix(names.gate, inner, hidden);
        matrix(names.up, inner, hidden);
        matrix(names.gate_up, 2 * inner, hidden);
        matrix(names.down, hidden, inner);
    }
    void linear_attention(const LayerNames& names) const {
        const LinearAttentionConfig& linear = config_.linear;
        const std::int64_t hidden = config_.hidden_size, keys = linear.n_key_heads, heads = linear.n_value_heads;
        const std::int64_t values = heads * linear.value_dim;
        matrix(names.linear_in, 2 * (keys * linear.key_dim + values), hidden);
        matrix(names.linear_gates, 2 * heads, hidden);
        matrix(names.linear_qkv, 2 * keys * linear.key_dim + values, hidden);
        matrix(names.linear_value_gates, values, hidden);
        matrix(names.linear_steps, heads, hidden);
        matrix(names.linear_decays, heads, hidden);
        one(names.linear_convolution.weight, {2 * keys * linear.key_dim + values, 1, linear.n_convolved},
            TensorRole::matrix);
        one(names.linear_decay.weight, {heads}, TensorRole::bias);
        one(names.linear_decay_bias.weight, {heads}, TensorRole::bias);
        one(names.linear_norm.weight, {linear.value_dim}, TensorRole::plain_norm);
        matrix(names.linear_output, hidden, values);
    }
    void experts(const LayerNames& names, int number) const {
        const ExpertsConfig& of = config_.experts;
        const std::int64_t hidden = config_.hidden_size, inner = of.intermediate_size, n = of.n_experts;
        matrix(names.router, n, hidden);
        one(names.router_correction.weight, {n}, TensorRole::bias);
        matrix(names.shared_gate, of.shared_size, hidden);
        matrix(names.shared_up, of.shared_size, hidden);
        matrix(names.shared_down, hidden, of.shared_size);
        matrix(names.shared_scale, 1, hidden);
        const auto all = [&](const TensorNames& stored, std::int64_t out, std::int64_t in) {
            one(stored.weight, names_.transposed_experts ? Shape{n, in, out} : Shape{n, out, in}, TensorRole::matrix);
            one(stored.bias, {n, out}, TensorRole::bias);
        };
        all(names.expert_gate_up, 2 * inner, hidden);
        all(names.expert_down, hidden, inner);
        if (!names.expert_down.weight.empty()) return;
        for (int i = 0; i < of.n_experts; ++i) {
            const ExpertNames expert = names_.expert(number, i);
            matrix(expert.gate, inner, hidden);
            matrix(expert.up, inner, hidden);
            matrix(expert.down, hidden, inner);
        }
    }

    const ModelConfig& config_;
    const ModelNames& names_;
    Function visit_;
};

// Of random weights.
std::uint64_t key_of(std::uint64_t seed, const std::string& tensor) {
    std::uint64_t key = mixed_word(seed);
    for (const char letter : tensor)
        key = mixed_word(key ^ static_cast<unsigned char>(letter));
    return key;
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

bool norm_has_bias(const ModelConfig& config) {
    return config.norm == Norm::layer && config.norm_bias;
}

LayerNames layer_names(const ModelConfig& config, const LayerStems& stems, const std::string& prefix) {
    const auto norm = [&](std::string_view stem) { return tensor_names(prefix, stem, norm_has_bias(config)); };
    const auto plain = [&](std::string_view stem) { return tensor_names(prefix, stem, false); };
    const auto whole = [&](std::string_view name) {
        return name.empty() ? TensorNames{} : TensorNames{prefix + std::string(name), ""};
    };
    const auto qkv = [&](std::string_view stem) { return tensor_names(prefix, stem, config.qkv_bias); };
    const auto mlp = [&](std::string_view stem) { return tensor_names(prefix, stem, config.mlp_bias); };
    const auto experts = [&](std::string_view name) {
        TensorNames names = whole(name);
        if (config.experts.has_biases) names.bias = names.weight + "_bias";
        return names;
    };
    return {.attention_norm = norm(stems.attention_norm),
            .mlp_norm = norm(stems.mlp_norm),
            .after_attention_norm = norm(stems.after_attention_norm),
            .after_mlp_norm = norm(stems.after_mlp_norm),
            .query = qkv(stems.query),
            .key = qkv(stems.key),
            .value = qkv(stems.value),
            .qkv = qkv(stems.qkv),
            .query_norm = plain(stems.query_norm),
            .key_norm = plain(stems.key_norm),
            .sinks = config.has_sinks ? whole(stems.sinks) : TensorNames{},
            .output = tensor_names(prefix, stems.output, config.output_bias),
            .gate = mlp(stems.gate),
            .up = mlp(stems.up),
            .gate_up = mlp(stems.gate_up),
            .down = mlp(stems.down),
            .cross_norm = norm(stems.cross_norm),
            .cross_query = qkv(stems.cross_query),
            .cross_key = qkv(stems.cross_key),
            .cross_value = qkv(stems.cross_value),
            .cross_output = tensor_names(prefix, stems.cross_output, config.output_bias),
            .query_down = plain(stems.query_down),
            .query_down_norm = plain(stems.query_down_norm),
            .key_value_down = plain(stems.key_value_down),
            .key_value_down_norm = plain(stems.key_value_down_norm),
            .key_value_up = plain(stems.key_value_up),
            .linear_in = plain(stems.linear_in),
            .linear_gates = plain(stems.linear_gates),
            .linear_qkv = plain(stems.linear_qkv),
            .linear_value_gates = plain(stems.linear_value_gates),
            .linear_steps = plain(stems.linear_steps),
            .linear_decays = plain(stems.linear_decays),
            .linear_convolution = plain(stems.linear_convolution),
            .linear_decay = whole(stems.linear_decay),
            .linear_decay_bias = whole(stems.linear_decay_bias),
            .linear_norm = plain(stems.linear_norm),
            .linear_output = plain(stems.linear_output),
            .router = tensor_names(prefix, stems.router, config.experts.has_router_bias),
            .router_correction = whole(stems.router_correction),
            .shared_gate = plain(stems.shared_gate),
            .shared_up = plain(stems.shared_up),
            .shared_down = plain(stems.shared_down),
            .shared_scale = plain(stems.shared_scale),
            .expert_gate_up = experts(stems.expert_gate_up),
            .expert_down = experts(stems.expert_down)};
}

// A layer has linear attention or another, experts or an MLP.
void drop_what_is_elsewhere(bool is_linear, bool has_experts, LayerNames& layer) {
    if (is_linear)
        layer.query = layer.key = layer.value = layer.query_norm = layer.key_norm = layer.output = {};
    else
        layer.linear_in = layer.linear_gates = layer.linear_qkv = layer.linear_value_gates = layer.linear_steps =
            layer.linear_decays = layer.linear_convolution = layer.linear_decay = layer.linear_decay_bias =
                layer.linear_norm = layer.linear_output = {};
    if (has_experts) {
        layer.gate = layer.up = layer.gate_up = layer.down = {};
        return;
    }
    layer.router = layer.router_correction = layer.shared_gate = layer.shared_up = layer.shared_down =
        layer.shared_scale = layer.expert_gate_up = layer.expert_down = {};
}

// No family's: what heads/*.cpp call these tensors.
FusionNames fusion_names(const ModelConfig& config, const std::string& prefix) {
    const FusionConfig& fusion = config.fusion;
    const auto norm = [&](std::string_view stem, bool is_there) {
        return is_there ? tensor_names(prefix, stem, norm_has_bias(config)) : TensorNames{};
    };
    const bool is_concat = fusion.kind == Fusion::concat, is_linear = fusion.kind == Fusion::linear || is_concat;
    FusionNames names;
    for (int i = 0; i < fusion.n_feature_norms; ++i)
        names.feature_norms.push_back(
            tensor_names(prefix, fmt::format("feature_norm.{}", i), fusion.feature_norm == Norm::layer));
    const bool is_lstm = fusion.kind == Fusion::lstm;
    if (is_lstm)
        for (const char* gate : {"forget", "input", "output", "cell"})
            names.feature_projections.push_back(tensor_names(prefix, fmt::format("{}_projection", gate), false));
    else if (fusion.projects_features)
        names.feature_projections = {tensor_names(prefix, "feature_projection", false)};
    if (is_linear) names.linear = tensor_names(prefix, "fusion", fusion.has_bias);
    if (is_concat) names.skip = tensor_names(prefix, "skip", fusion.has_bias);
    if (fusion.kind == Fusion::sum || is_lstm) names.sum_norm = tensor_names(prefix, "sum_norm", true);
    if (is_lstm) names.cell_norm = tensor_names(prefix, "cell_norm", true);
    names.embedding_norm = norm("embedding_norm", fusion.norms_embedding);
    names.state_norm = norm("state_norm", fusion.norms_state);
    for (int i = 0; i < fusion.n_cells; ++i) {
        names.cells.push_back(tensor_names(prefix, fmt::format("cells.{}", i), fusion.has_bias));
        if (fusion.has_bias) names.cells.back().second_bias = prefix + fmt::format("cells.{}.state_bias", i);
    }
    for (int i = 0; i < fusion.n_residual_blocks; ++i) {
        names.residual_blocks.push_back(
            tensor_names(prefix, fmt::format("residual_blocks.{}", i), fusion.residual_bias));
        if (fusion.residual_size > 0)
            names.residual_outputs.push_back(
                tensor_names(prefix, fmt::format("residual_outputs.{}", i), fusion.residual_bias));
    }
    return names;
}

ModelNames names_with_prefix(const ModelConfig& config, const TensorStems& stems, const std::string& prefix) {
    ModelNames names;
    names.embedding = tensor_names(prefix, stems.embedding, false);
    if (config.positions == Positions::learned || config.positions == Positions::sinusoidal)
        names.positions = tensor_names(prefix, stems.positions, false);
    if (config.positions == Positions::relative) names.relative_bias = tensor_names(prefix, stems.relative_bias, false);
    if (config.embedding_norm) names.embedding_norm = tensor_names(prefix, stems.embedding_norm, norm_has_bias(config));
    names.project_in = tensor_names(prefix, stems.project_in, false);
    names.project_out = tensor_names(prefix, stems.project_out, false);
    if (config.final_norm) names.final_norm = tensor_names(prefix, stems.final_norm, norm_has_bias(config));
    names.head = tensor_names("", stems.head, config.head_bias);
    if (config.head_bias && !stems.head_bias.empty()) names.head.bias = stems.head_bias;
    names.qkv = stems.qkv;
    names.transposed = stems.transposed;
    const bool is_mxfp4 = config.quantization && config.quantization->form == QuantizedForm::mxfp4;
    names.transposed_experts = stems.transposed_experts && !is_mxfp4;
    names.fusion = fusion_names(config, prefix);
    names.layer = [config, prefix, stems](int index) {
        LayerNames layer = layer_names(config, stems.layer, fmt::format("{}{}.{}.", prefix, stems.layers, index));
        drop_what_is_elsewhere(config.is_linear(index), config.has_experts(index), layer);
        if (index == 0 && (config.fusion.kind == Fusion::attention || !config.fusion.first_attention_norm))
            layer.attention_norm = {};
        return layer;
    };
    const bool has_biases = config.experts.has_biases;
    names.expert = [prefix, stems, has_biases](int index, int expert) -> ExpertNames {
        const std::string of_expert = fmt::format("{}{}.{}.{}.{}.", prefix, stems.layers, index, stems.experts, expert);
        const auto named = [&](std::string_view stem) { return tensor_names(of_expert, stem, has_biases); };
        return {named(stems.expert.gate), named(stems.expert.up), named(stems.expert.down)};
    };
    std::vector<std::string> ignored(stems.ignored.begin(), stems.ignored.end());
    const std::string of_layers = fmt::format("{}{}.", prefix, stems.layers);
    const int n_layers = stems.ignores_further_layers ? config.n_layers : std::numeric_limits<int>::max();
    names.ignores = [ignored, of_layers, n_layers](std::string_view name) {
        int layer = -1;
        if (name.starts_with(of_layers))
            std::from_chars(name.data() + of_layers.size(), name.data() + name.size(), layer);
        return layer >= n_layers || std::ranges::any_of(ignored, [&](const std::string& part) {
                   return name.starts_with(part) || name.ends_with(part);
               });
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

namespace {

// A file has a tensor for all experts of a layer together, or tensors of each. Of what has no names yet, of each.
void choose_expert_form(const ModelConfig& config, const Checkpoint& checkpoint, ModelNames& names) {
    int first = 0;
    while (first < config.n_layers && !config.has_experts(first))
        ++first;
    if (first == config.n_layers || checkpoint.has(names.layer(first).expert_down.weight)) return;
    if (names.expert(first, 0).down.weight.empty()) return; // the family knows no other
    names.layer = [of = names.layer](int index) {
        LayerNames layer = of(index);
        layer.expert_gate_up = layer.expert_down = {};
        return layer;
    };
}

} // namespace

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
        if (!checkpoint.has(with_prefix.embedding.weight) && !checkpoint.has(with_prefix.layer(0).output.weight))
            continue;
        names = std::move(with_prefix);
        break;
    }
    // A computed table may be stored, in whatever precision, and is used then, as transformers does.
    if (config.positions == Positions::sinusoidal && !checkpoint.has(names.positions.weight)) names.positions = {};
    choose_expert_form(config, checkpoint, names);
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

namespace {

// Of the model's tensors and of its encoder's, where it has one.
void visit_all(const ModelConfig& config, const Checkpoint& checkpoint, const TensorVisit::Function& visit) {
    TensorVisit(config, names_of(config, checkpoint), visit).all();
    if (!config.has_encoder()) return;
    const ModelConfig encoder = encoder_of(config);
    TensorVisit(encoder, names_of(encoder, checkpoint), visit).all();
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
    // A config with absurdly many layers ends at the first that the file lacks.
    visit_all(config, checkpoint, [&](const std::string& name, const Shape& shape, TensorRole) {
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
    visit_all(config, Checkpoint(), [&](const std::string& name, const Shape& shape, TensorRole role) {
        TensorView tensor;
        tensor.name = name;
        tensor.dtype = "random";
        tensor.type = DiskType::generated;
        tensor.shape = shape;
        if (role == TensorRole::matrix) tensor.generated = {true, key_of(seed, name), 0};
        if (role == TensorRole::plain_norm) tensor.generated.value = 1;
        if (role == TensorRole::norm) tensor.generated.value = 1 - config.norm_offset;
        tensors.push_back(std::move(tensor));
    });
    return Checkpoint::generated(std::move(tensors), bytes_of(config.stored_type));
}

} // namespace entrodraft::model
