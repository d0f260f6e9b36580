#include "model/torch/parameters.h"

#include <ATen/ops/reshape.h>

namespace entrodraft::model::torch {

at::Tensor Parameters::matrix(const PlannedMatrix& source, const StoredSlice& part, const at::TensorOptions& numbers) {
    const at::Tensor& stored = leaf(part.tensor->names.weight);
    const at::Tensor rows = stored.reshape({-1, stored.size(-1)});
    return (source.transposed ? rows.t() : rows)
        .narrow(0, part.rows.begin, part.rows.size())
        .narrow(1, source.inputs.begin, source.inputs.size())
        .to(numbers.device(), c10::typeMetaToScalarType(numbers.dtype()));
}

at::Tensor Parameters::vector(const std::string& name, at::Device device) {
    return leaf(name).reshape(-1).to(device);
}

const at::Tensor& Parameters::leaf(const std::string& name) {
    const auto known = leaves_.find(name);
    if (known != leaves_.end()) return known->second;
    const at::Tensor read = to_tensor(read_vector(checkpoint_, name), device_);
    return leaves_.emplace(name, read.view(checkpoint_.tensor(name).shape).set_requires_grad(true)).first->second;
}

} // namespace entrodraft::model::torch
