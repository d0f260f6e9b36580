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

} // namespace entrodraft::model
