#include "model/torch/weights.h"

#include "model/cpu/packing.h"
#include "model/files/tensor_values.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
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

// One behind the other.
at::Tensor joined(const std::vector<at::Tensor>& parts) {
    if (parts.empty()) return {};
    return parts.size() == 1 ? parts.front() : at::cat(parts);
}

// The parts of the sources; undefined where the model has none, while a rank's may be empty.
at::Tensor make_matrix(StoredTensors& stored, const std::vector<const MatrixSource*>& stacked,
                       const at::TensorOptions& numbers) {
    std::vector<at::Tensor> parts;
    for (const MatrixSource* source : stacked)
        for (const StoredSlice& part : source->rows)
            parts.push_back(stored.matrix(*source, part, numbers));
    return joined(parts);
}

// Undefined where the layer has no bias.
at::Tensor make_biases(StoredTensors& stored, const std::vector<const MatrixSource*>& stacked, at::Device device) {
    std::vector<at::Tensor> parts;
    for (const MatrixSource* source : stacked)
        for (const StoredSlice& part : source->rows) {
            if (part.tensor->bias.empty()) continue;
            const auto of_rows = [&](const std::string& name) {
                return stored.vector(name, device).narrow(0, part.rows.begin, part.rows.size());
            };
            parts.push_back(of_rows(part.tensor->bias));
            if (!part.tensor->second_bias.empty()) parts.back() = parts.back() + of_rows(part.tensor->second_bias);
        }
    return joined(parts);
}

} // namespace

at::Tensor CheckpointTensors::matrix(const MatrixSource& source, const StoredSlice& part,
                                     const at::TensorOptions& numbers) {
    constexpr std::int64_t kNumbersAtOnce = std::int64_t{1} << 23;
    const TensorView& tensor = checkpoint_.tensor(part.tensor->weight);
    const std::int64_t begin = part.rows.begin, end = part.rows.end;
    const auto own_inputs = [&](const at::Tensor& rows) {
        return rows.narrow(1, source.inputs.begin, source.inputs.size());
    };
    at::Tensor made = at::empty({end - begin, source.inputs.size()}, numbers);
    if (source.transposed)
        return made.copy_(own_inputs(read_rows(tensor, {0, tensor.shape[0]}).t().narrow(0, begin, end - begin)));
    const std::int64_t at_once = std::max<std::int64_t>(1, kNumbersAtOnce / tensor.shape.back());
    for (std::int64_t row = begin; row < end; row += at_once) {
        const std::int64_t count = std::min(at_once, end - row);
        made.narrow(0, row - begin, count).copy_(own_inputs(read_rows(tensor, {row, row + count})));
    }
    return made;
}

at::Tensor CheckpointTensors::vector(const std::string& name, at::Device device) {
    return to_tensor(read_vector(checkpoint_, name), device);
}

TensorWeights::TensorWeights(StoredTensors& stored, const ModelConfig& config, const RankShard& shard,
                             const at::TensorOptions& numbers,
                             const std::function<void(std::size_t, std::size_t)>& progress) {
    const Checkpoint& checkpoint = stored.checkpoint();
    const ModelNames names = names_of(config, checkpoint);
    const at::Device device = numbers.device();
    const auto vector = [&](const std::string& name, float offset = 0, float scale = 1) {
        at::Tensor values = name.empty() ? at::Tensor() : stored.vector(name, device);
        if (values.defined() && offset != 0) values = values + offset;
        return values.defined() && scale != 1 ? values * scale : values;
    };
    const auto norm_of = [&](const TensorNames& of, float scale = 1) -> TensorNorm {
        return {vector(of.weight, config.norm_offset, scale), vector(of.bias, 0, scale), config.norm,
                config.norm_epsilon};
    };
    const auto own_heads_of = [&](TensorNorm norm, dist::Slice heads) { // of QueryKeyNorm::row
        if (config.query_key_norm == QueryKeyNorm::row)
            norm.weight = norm.weight.narrow(0, heads.begin * config.head_dim, heads.size() * config.head_dim);
        return norm;
    };
    const auto read = [&](const std::vector<const MatrixSource*>& stacked, bool has_bias) -> TensorMatrix {
        TensorMatrix matrix = {make_matrix(stored, stacked, numbers),
                               has_bias ? make_biases(stored, stacked, device) : at::Tensor()};
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
        to.router = {make_matrix(stored, {&router}, numbers.dtype(at::kFloat)), {}};
        bytes_per_pass += to.router.weight.nbytes();
        operations_per_row += 2.0 * static_cast<double>(to.router.weight.numel());
        if (!of_layer.router_correction.weight.empty()) {
            const at::Tensor correction = stored.vector(of_layer.router_correction.weight, at::kCPU).contiguous();
            const float* first = correction.const_data_ptr<float>();
            to.router_correction.assign(first, first + correction.numel());
        }
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
        fusion.feature_norms.push_back({vector(each.weight, config.fusion.feature_norm_offset), vector(each.bias),
                                        config.fusion.feature_norm, config.fusion.feature_norm_epsilon});
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
    const auto table_of = [](const at::Tensor& values, std::int64_t width) {
        return values.defined() ? values.view({-1, width}) : values;
    };
    positions = table_of(config.positions == Positions::learned // others are computed, and not trained
                             ? vector(names.positions.weight)
                             : to_tensor(read_positions(checkpoint, config, names), device),
                         config.hidden_size);
    if (const at::Tensor by_bucket = vector(names.relative_bias.weight); by_bucket.defined())
        relative_biases = table_of(by_bucket.index_select(0, to_tensor(relative_bias_indices(config, shard), device)),
                                   2 * std::int64_t{config.relative.max_distance} + 1);
    if (!config.is_encoder && !names.head.bias.empty())
        head_bias = vector(names.head.bias).narrow(0, shard.outputs.begin, shard.outputs.size());
    if (progress) progress(checkpoint.total_bytes(), checkpoint.total_bytes());
}

} // namespace entrodraft::model::torch
