// The tensors of a checkpoint as parameters: float32, each with its gradient. Called by torch/trainer.
#pragma once

#include "model/torch/weights.h"

#include <map>
#include <string>

namespace entrodraft::model::torch {

class Parameters final : public StoredTensors {
  public:
    // Reads each tensor when it is first asked for: so unused tensors are no parameters. `checkpoint` outlives it.
    Parameters(const Checkpoint& checkpoint, at::Device device) : checkpoint_(checkpoint), device_(device) {}

    const Checkpoint& checkpoint() const override { return checkpoint_; }
    at::Tensor matrix(const PlannedMatrix& source, const StoredSlice& part, const at::TensorOptions& numbers) override;
    at::Tensor vector(const std::string& name, at::Device device) override;

    const std::map<std::string, at::Tensor>& all() const { return leaves_; }

  private:
    const at::Tensor& leaf(const std::string& name);

    const Checkpoint& checkpoint_;
    at::Device device_;
    std::map<std::string, at::Tensor> leaves_;
};

} // namespace entrodraft::model::torch
