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

// Returns rows of a stored matrix as stored, in float32.
at::Tensor read_rows(const TensorView& tensor, dist::Slice rows) {
    const std::int64_t width = tensor.shape.back();
    at::Tensor floats = at::empty({rows.size(), width}, at::kFloat);
    read_floats(tensor, {rows.begin * width, rows.end * width}, floats.mutable_data_ptr<float>());
    return floats;
}

// Concatenates the parts.
at::Tensor joined(const std::vector<at::Tensor>& parts) {
    if (parts.empty()) return {};
    return parts.size() == 1 ? parts.front() : at::cat(parts);
}

} // namespace

at::Tensor CheckpointTensors::matrix(const PlannedMatrix& source, const StoredSlice& part,
                                     const at::TensorOptions& numbers) {
    constexpr std::int64_t kNumbersAtOnce = std::int64_t{1} << 23;
    const TensorView& tensor = checkpoint_.tensor(part.tensor->names.weight);
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

namespace {

// Makes the tensors of a layer, or those around the layers, from its plan.
class Loader {
  public:
    Loader(StoredTensors& stored, const ModelConfig& config, const RankShard& shard, const at::TensorOptions& numbers,
           TensorWeights& to)
        : stored_(stored), config_(config), shard_(shard), numbers_(numbers), to_(to) {}

    void load(const TensorPlan& plan, TensorsByRole& to) {
        const PlannedMatrix* gate = nullptr; // comes before its `up`
        for (const PlannedMatrix& matrix : plan.matrices) {
            if (matrix.role == Role::gate || matrix.role == Role::expert_gate) {
                gate = &matrix;
                continue;
            }
            const bool has_gate = gate != nullptr && (matrix.role == Role::up || matrix.role == Role::expert_up);
            to.all(matrix.role).push_back(has_gate ? read({gate, &matrix}) : read({&matrix}));
            count(matrix, to.all(matrix.role).back());
        }
        for (const PlannedVector& vector : plan.vectors)
            to.vectors(vector.role).push_back(read(vector));
    }

  private:
    // Reads matrices, one after another. A rank's part may be empty.
    TensorMatrix read(const std::vector<const PlannedMatrix*>& matrices) {
        std::vector<at::Tensor> weights, biases;
        const bool is_exact = matrices.front()->role == Role::router;
        for (const PlannedMatrix* matrix : matrices)
            for (const StoredSlice& slice : matrix->rows) {
                weights.push_back(stored_.matrix(*matrix, slice, is_exact ? numbers_.dtype(at::kFloat) : numbers_));
                if (matrix->has_bias()) biases.push_back(bias_of(slice));
            }
        TensorMatrix made = {joined(weights), joined(biases)};
        if (made.bias.defined()) made.bias = made.bias.to(numbers_.dtype());
        return made;
    }

    at::Tensor bias_of(const StoredSlice& slice) {
        const auto rows_of = [&](const std::string& name) {
            return stored_.vector(name, numbers_.device()).narrow(0, slice.rows.begin, slice.rows.size());
        };
        const TensorNames& names = slice.tensor->names;
        return names.second_bias.empty() ? rows_of(names.bias) : rows_of(names.bias) + rows_of(names.second_bias);
    }

    // A pass of one row reads a part of the experts. It reads the embedding only if the embedding is the head.
    void count(const PlannedMatrix& matrix, const TensorMatrix& made) {
        const bool is_looked_up = matrix.role == Role::embedding && config_.has_head();
        if (is_looked_up || matrix.reading == Reading::once_a_source || !made.weight.defined()) return;
        const double chosen = static_cast<double>(config_.experts.n_chosen) / std::max(1, config_.experts.n_experts);
        const double share = matrix.reading == Reading::chosen_experts ? chosen : 1;
        bytes_ += static_cast<double>(made.weight.nbytes()) * share;
        to_.bytes_per_pass = static_cast<std::size_t>(bytes_);
        to_.operations_per_row += 2.0 * static_cast<double>(made.weight.numel()) * share;
    }

    TensorNorm read(const PlannedVector& vector) {
        const at::Device device = vector.role == Role::router_correction ? at::kCPU : numbers_.device();
        TensorNorm made = {{}, {}, vector.norm, vector.epsilon};
        const bool is_computed = vector.role == Role::positions && config_.positions != Positions::learned;
        if (is_computed) { // so it is not trained, even if it is stored
            made.weight = to_tensor(read_planned(stored_.checkpoint(), config_, shard_, vector).weight, device);
        } else {
            made.weight = part_of(vector, stored_.vector(vector.tensor->names.weight, device));
            if (vector.offset != 0) made.weight = made.weight + vector.offset;
            if (vector.scale != 1) made.weight = made.weight * vector.scale;
            if (const std::string& bias = vector.tensor->names.bias; !bias.empty()) {
                made.bias = part_of(vector, stored_.vector(bias, device));
                if (vector.scale != 1) made.bias = made.bias * vector.scale;
            }
        }
        if (vector.role == Role::relative_biases)
            made.weight = made.weight.index_select(0, to_tensor(relative_bias_indices(config_, shard_), device))
                              .view({-1, 2 * std::int64_t{config_.relative.max_distance} + 1});
        if (vector.role == Role::positions) made.weight = made.weight.view({-1, config_.hidden_size});
        return made;
    }

    static at::Tensor part_of(const PlannedVector& vector, const at::Tensor& all) {
        if (vector.parts.empty()) return all;
        return all.narrow(0, vector.parts.front().begin, vector.parts.front().size());
    }

    StoredTensors& stored_;
    const ModelConfig& config_;
    const RankShard& shard_;
    const at::TensorOptions numbers_;
    TensorWeights& to_;
    double bytes_ = 0; // per pass, so far
};

} // namespace

TensorWeights::TensorWeights(StoredTensors& stored, const ModelConfig& config, const RankShard& shard,
                             const at::TensorOptions& numbers,
                             const std::function<void(std::size_t, std::size_t)>& progress) {
    const Checkpoint& checkpoint = stored.checkpoint();
    const ModelNames names = names_of(config, checkpoint);
    Loader loader(stored, config, shard, numbers, *this);
    layers.resize(static_cast<std::size_t>(config.n_layers));
    for (int i = 0; i < config.n_layers; ++i) {
        TensorsByRole& layer = layers[i];
        loader.load(plan_layer(config, names, i, shard), layer);
        for (int expert = 0; config.has_experts(i) && expert < config.experts.n_experts; ++expert)
            loader.load(plan_expert(config, names, i, expert, shard), layer);
        const auto done = static_cast<std::size_t>(i + 1), all = static_cast<std::size_t>(config.n_layers) + 1;
        if (progress) progress(checkpoint.total_bytes() * done / all, checkpoint.total_bytes());
    }
    loader.load(plan_outer(config, names, shard), outer);
    if (progress) progress(checkpoint.total_bytes(), checkpoint.total_bytes());
}

} // namespace entrodraft::model::torch
