#include "model/torch/weights.h"

#include "model/cpu/packing.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <algorithm>

namespace entrodraft::model::torch {

namespace {

// Rows of a stored matrix, as they come, in float32.
at::Tensor read_rows(const TensorView& tensor, dist::Slice rows) {
    const std::int64_t width = tensor.shape.back();
    at::Tensor floats = at::empty({rows.size(), width}, at::kFloat);
    read_floats(tensor, {rows.begin * width, rows.end * width}, floats.mutable_data_ptr<float>());
    return floats;
}

// The parts of the sources, one behind the other; undefined where the model has none, while a rank's may be empty.
at::Tensor read_matrix(const Checkpoint& checkpoint, const std::vector<const MatrixSource*>& stacked,
                       const at::TensorOptions& options) {
    constexpr std::int64_t kNumbersAtOnce = std::int64_t{1} << 23;
    std::int64_t n = 0, k = 0;
    bool has_parts = false;
    for (const MatrixSource* source : stacked) {
        k = source->inputs.size();
        for (const StoredSlice& part : source->rows)
            n += part.rows.size();
        has_parts = has_parts || !source->rows.empty();
    }
    if (!has_parts) return {};
    at::Tensor matrix = at::empty({n, k}, options);
    std::int64_t at = 0;
    const auto place = [&](const MatrixSource& source, const at::Tensor& rows) {
        matrix.narrow(0, at, rows.size(0)).copy_(rows.narrow(1, source.inputs.begin, k));
        at += rows.size(0);
    };
    for (const MatrixSource* source : stacked) {
        for (const StoredSlice& part : source->rows) {
            const TensorView& tensor = checkpoint.tensor(part.tensor->weight);
            if (source->transposed) {
                place(*source,
                      read_rows(tensor, {0, tensor.shape[0]}).t().narrow(0, part.rows.begin, part.rows.size()));
                continue;
            }
            const std::int64_t at_once = std::max<std::int64_t>(1, kNumbersAtOnce / tensor.shape.back());
            for (std::int64_t begin = part.rows.begin; begin < part.rows.end; begin += at_once)
                place(*source, read_rows(tensor, {begin, std::min(begin + at_once, part.rows.end)}));
        }
    }
    return matrix;
}

} // namespace

TensorWeights::TensorWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                             const at::TensorOptions& numbers,
                             const std::function<void(std::size_t, std::size_t)>& progress) {
    const ModelNames names = names_of(config, checkpoint);
    const at::Device device = numbers.device();
    const auto on_device = [&](const NormWeights& norm, Norm kind, float epsilon) -> TensorNorm {
        return {to_tensor(norm.weight, device), to_tensor(norm.bias, device), kind, epsilon};
    };
    const auto norm_of = [&](const TensorNames& of, float scale = 1) {
        return on_device(read_norm(checkpoint, of, config.norm_offset, scale), config.norm, config.norm_epsilon);
    };
    const auto own_heads_of = [&](TensorNorm norm, dist::Slice heads) { // of QueryKeyNorm::row
        if (config.query_key_norm == QueryKeyNorm::row)
            norm.weight = norm.weight.narrow(0, heads.begin * config.head_dim, heads.size() * config.head_dim);
        return norm;
    };
    const auto read = [&](const std::vector<const MatrixSource*>& stacked, bool has_bias) -> TensorMatrix {
        std::vector<float> biases;
        for (const MatrixSource* source : stacked) {
            const std::vector<float> of = has_bias ? read_biases(checkpoint, source->rows) : std::vector<float>();
            biases.insert(biases.end(), of.begin(), of.end());
        }
        TensorMatrix matrix = {read_matrix(checkpoint, stacked, numbers), to_tensor(biases, device)};
        if (matrix.bias.defined()) matrix.bias = matrix.bias.to(numbers.dtype());
        if (matrix.weight.defined()) {
            bytes_per_pass += matrix.weight.nbytes();
            operations_per_row += 2.0 * static_cast<double>(matrix.weight.numel());
        }
        return matrix;
    };
    // A row goes through a part of the experts.
    const auto read_experts = [&](const LayerNames& of_layer, int number, TensorLayer& to) {
        const MatrixSource router = router_source(config, of_layer);
        to.router = {read_matrix(checkpoint, {&router}, numbers.dtype(at::kFloat)), {}};
        if (!of_layer.router_correction.weight.empty())
            to.router_correction = read_vector(checkpoint, of_layer.router_correction.weight);
        const std::size_t bytes = bytes_per_pass;
        const double operations = operations_per_row;
        for (int expert = 0; expert < config.experts.n_experts; ++expert) {
            const ExpertNames of_expert = names.expert(number, expert);
            const ExpertSources sources = expert_sources(config, names, of_layer, of_expert, expert, shard);
            to.experts.push_back({read({&sources.gate, &sources.up}, false), read({&sources.down}, false)});
        }
        const double share = static_cast<double>(config.experts.n_chosen) / config.experts.n_experts;
        bytes_per_pass = bytes + static_cast<std::size_t>(static_cast<double>(bytes_per_pass - bytes) * share);
        operations_per_row = operations + (operations_per_row - operations) * share;
    };
    for (int i = 0; i < config.n_layers; ++i) {
        const LayerNames layer = names.layer(i);
        const LayerSources sources = layer_sources(config, names, layer, i, shard);
        layers.push_back({norm_of(layer.attention_norm), norm_of(layer.mlp_norm), norm_of(layer.after_attention_norm),
                          norm_of(layer.after_mlp_norm),
                          own_heads_of(norm_of(layer.query_norm), shard.heads.query_heads),
                          own_heads_of(norm_of(layer.key_norm), shard.heads.kv_heads), read({&sources.qkv}, true),
                          read({&sources.output}, shard.is_first), // of what is summed over ranks, biases count once
                          read({&sources.gate, &sources.up}, true), read({&sources.down}, shard.is_first)});
        if (config.has_experts(i)) read_experts(layer, i, layers.back());
        if (config.has_encoder()) {
            const CrossSources cross = cross_sources(config, layer, shard);
            TensorLayer& last = layers.back();
            last.cross_norm = norm_of(layer.cross_norm);
            last.cross_query = read({&cross.query}, true);
            last.cross_output = read({&cross.output}, shard.is_first);
            const std::size_t of_pass = bytes_per_pass; // the others are read once a source
            const double operations = operations_per_row;
            last.cross_key_value = read({&cross.key_value}, true);
            bytes_per_pass = of_pass;
            operations_per_row = operations;
        }
        const auto done = static_cast<std::size_t>(i + 1), all = static_cast<std::size_t>(config.n_layers) + 1;
        if (progress) progress(checkpoint.total_bytes() * done / all, checkpoint.total_bytes());
    }
    const OuterSources sources = outer_sources(config, names, shard);
    own_head = read({&sources.head}, false);
    project_in = read({&sources.project_in}, false);
    project_out = read({&sources.project_out}, false);
    for (const TensorNames& each : names.fusion.feature_norms)
        fusion.feature_norms.push_back(on_device(read_norm(checkpoint, each, config.fusion.feature_norm_offset),
                                                 config.fusion.feature_norm, config.fusion.feature_norm_epsilon));
    fusion.embedding_norm = norm_of(names.fusion.embedding_norm);
    fusion.state_norm = norm_of(names.fusion.state_norm);
    fusion.sum_norm = norm_of(names.fusion.sum_norm);
    fusion.cell_norm = norm_of(names.fusion.cell_norm);
    fusion.feature_projection = read({&sources.feature_projection}, true);
    fusion.linear = read({&sources.fusion}, true);
    fusion.skip = read({&sources.skip}, true);
    const auto read_all = [&](const std::vector<MatrixSource>& matrices, std::vector<TensorMatrix>& to) {
        for (const MatrixSource& matrix : matrices)
            to.push_back(read({&matrix}, true));
    };
    read_all(sources.cells, fusion.cells);
    read_all(sources.residual_blocks, fusion.residual_blocks);
    read_all(sources.residual_outputs, fusion.residual_outputs);
    const std::size_t without_embedding = bytes_per_pass;
    const double operations_without = operations_per_row;
    embedding = read({&sources.embedding}, false);
    if (own_head.weight.defined()) { // then the embedding is only looked up
        bytes_per_pass = without_embedding;
        operations_per_row = operations_without;
    }
    embedding_norm = norm_of(names.embedding_norm);
    final_norm = norm_of(names.final_norm, config.output_scale);
    const auto read_table = [&](const std::vector<float>& values, std::int64_t width) {
        const at::Tensor table = to_tensor(values, device);
        return table.defined() ? table.view({-1, width}) : table;
    };
    positions = read_table(read_positions(checkpoint, config, names), config.hidden_size);
    relative_biases = read_table(read_relative_biases(checkpoint, config, names, shard),
                                 2 * std::int64_t{config.relative.max_distance} + 1);
    head_bias = to_tensor(read_head_bias(checkpoint, config, names, shard), device);
    if (progress) progress(checkpoint.total_bytes(), checkpoint.total_bytes());
}

} // namespace entrodraft::model::torch
