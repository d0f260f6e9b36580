// All weights of a model that one rank holds, as tensors of ATen: matrices [outputs][inputs] in the weights' type,
// vectors in float32. Biases of matrices have the matrix's type.
//
// The plan of the tensors is the same for every device (model/weights/layer_plan.h). Called by torch/decoder.
#pragma once

#include "model/files/checkpoint.h"
#include "model/weights/planned_values.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <functional>
#include <iterator>
#include <vector>

namespace entrodraft::model::torch {

struct TensorMatrix {
    at::Tensor weight, bias; // bias: [outputs], or undefined
};

// A norm or another vector, float32.
struct TensorNorm {
    at::Tensor weight, bias; // weight undefined: there is no norm
    Norm kind = Norm::rms;
    float epsilon = 0;
};

// A layer's tensors, or those around the layers. Role::up is gates, then ups, or ups alone; Role::expert_up is the same
// for each expert. The router is float32; its correction lies in host memory.
using TensorsByRole = HeldTensors<TensorMatrix, TensorNorm>;

// The tensors from which weights are made, as a checkpoint stores them. Weights made from them are differentiable.
class StoredTensors {
  public:
    virtual ~StoredTensors() = default;
    virtual const Checkpoint& checkpoint() const = 0;
    // Returns a matrix's part of a stored tensor: [part.rows][source.inputs], with the type and device of `numbers`.
    virtual at::Tensor matrix(const PlannedMatrix& source, const StoredSlice& part,
                              const at::TensorOptions& numbers) = 0;
    // Returns a whole stored tensor, [elements], float32.
    virtual at::Tensor vector(const std::string& name, at::Device device) = 0;
};

// Reads from the files each time.
class CheckpointTensors final : public StoredTensors {
  public:
    explicit CheckpointTensors(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
    const Checkpoint& checkpoint() const override { return checkpoint_; }
    at::Tensor matrix(const PlannedMatrix& source, const StoredSlice& part, const at::TensorOptions& numbers) override;
    at::Tensor vector(const std::string& name, at::Device device) override;

  private:
    const Checkpoint& checkpoint_;
};

struct TensorWeights {
    // Makes the rank's slice on the device. `progress` receives bytes done and the total. Throws BadFile, c10::Error.
    TensorWeights(StoredTensors& stored, const ModelConfig& config, const RankShard& shard,
                  const at::TensorOptions& numbers, const std::function<void(std::size_t, std::size_t)>& progress);

    const TensorMatrix& head() const {
        return outer[outer[Role::head].weight.defined() ? Role::head : Role::embedding];
    }

    TensorsByRole outer;
    std::vector<TensorsByRole> layers;
    std::size_t bytes_per_pass = 0; // read by a pass of one row
    double operations_per_row = 0;  // multiply-adds times two
};

// Returns a copy on the device; undefined if `values` is empty.
template <typename T> at::Tensor to_tensor(const std::vector<T>& values, at::Device device) {
    if (values.empty()) return {};
    return at::from_blob(const_cast<T*>(values.data()), std::ssize(values), c10::CppTypeToScalarType<T>::value)
        .to(device, c10::CppTypeToScalarType<T>::value, false, true);
}

} // namespace entrodraft::model::torch
