// All weights of a model that one rank holds, as tensors of ATen: matrices [outputs][inputs] in the weights' type,
// vectors in float32 but for biases, which are of the matrix's type.
//
// What is read from where is the same for every device (model/weights/sources.h). Called by torch/decoder.
#pragma once

#include "model/files/checkpoint.h"
#include "model/weights/sources.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <functional>
#include <iterator>
#include <vector>

namespace entrodraft::model::torch {

struct TensorMatrix {
    at::Tensor weight, bias; // bias: [outputs], or undefined
};

struct TensorNorm {
    at::Tensor weight, bias; // weight undefined: no norm
    Norm kind = Norm::rms;
    float epsilon = 0;
};

struct TensorExpert {
    TensorMatrix wide, down; // as a layer's
};

struct TensorLayer {
    TensorNorm attention_norm, mlp_norm, after_attention_norm, after_mlp_norm, query_norm, key_norm;
    TensorMatrix qkv, output, wide, down; // wide: gate, then up; or up alone
    // Of a layer that attends to a source; cross_key_value: own key heads, then own value heads
    TensorNorm cross_norm = {};
    TensorMatrix cross_query = {}, cross_key_value = {}, cross_output = {};
    // Of a layer with experts, whose wide and down are those of the shared one.
    TensorMatrix router = {}; // float32; behind it the shared one's scale
    std::vector<float> router_correction = {};
    std::vector<TensorExpert> experts = {};
};

// Of a draft head (ModelConfig::fusion).
struct TensorFusion {
    std::vector<TensorNorm> feature_norms;
    TensorMatrix feature_projection, linear, skip;
    TensorNorm embedding_norm, state_norm, sum_norm, cell_norm;
    std::vector<TensorMatrix> cells, residual_blocks, residual_outputs;
};

// The tensors that weights are made of, as a checkpoint stores them. What is made of them is differentiable.
class StoredTensors {
  public:
    virtual ~StoredTensors() = default;
    virtual const Checkpoint& checkpoint() const = 0;
    // What a matrix has of one of them: [part.rows][source.inputs], of the type and on the device of `numbers`.
    virtual at::Tensor matrix(const MatrixSource& source, const StoredSlice& part,
                              const at::TensorOptions& numbers) = 0;
    // All of one, [elements], float32.
    virtual at::Tensor vector(const std::string& name, at::Device device) = 0;
};

// Read from the files each time.
class CheckpointTensors final : public StoredTensors {
  public:
    explicit CheckpointTensors(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
    const Checkpoint& checkpoint() const override { return checkpoint_; }
    at::Tensor matrix(const MatrixSource& source, const StoredSlice& part, const at::TensorOptions& numbers) override;
    at::Tensor vector(const std::string& name, at::Device device) override;

  private:
    const Checkpoint& checkpoint_;
};

struct TensorWeights {
    // Makes the rank's slice, on the device. `progress` is told of bytes done and of all. Throws BadFile, c10::Error.
    // Local.
    TensorWeights(StoredTensors& stored, const ModelConfig& config, const RankShard& shard,
                  const at::TensorOptions& numbers, const std::function<void(std::size_t, std::size_t)>& progress);

    const TensorMatrix& head() const { return own_head.weight.defined() ? own_head : embedding; }

    TensorMatrix embedding, own_head, project_in, project_out;
    // float32, or undefined
    at::Tensor positions;       // learned or sinusoidal, [max_positions + position_offset][hidden_size]
    at::Tensor relative_biases; // [own query heads][2 max_distance + 1], by distance
    at::Tensor head_bias;       // [own outputs]
    TensorNorm embedding_norm;
    TensorFusion fusion;
    std::vector<TensorLayer> layers;
    TensorNorm final_norm;
    std::size_t bytes_per_pass = 0; // read by a pass of one row
    double operations_per_row = 0;  // multiply-adds times two
};

// A copy on the device; undefined of an empty vector. Local.
template <typename T> at::Tensor to_tensor(const std::vector<T>& values, at::Device device) {
    if (values.empty()) return {};
    return at::from_blob(const_cast<T*>(values.data()), std::ssize(values), c10::CppTypeToScalarType<T>::value)
        .to(device, c10::CppTypeToScalarType<T>::value, false, true);
}

} // namespace entrodraft::model::torch
