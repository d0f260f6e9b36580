// Where tensors are and of what type, and errors of ATen as ours. Called by torch/decoder and torch/trainer.
#pragma once

#include "model/families/config.h"
#include "model/torch/place.h"

#include <ATen/core/Tensor.h>
#include <stdexcept>
#include <string>

namespace entrodraft::model::torch {

// Errors of ATen without the stack behind their message.
template <typename Work> void in_one_line(const Work& work) {
    try {
        work();
    } catch (const c10::Error& error) {
        throw std::runtime_error(std::string("torch: ") + error.what_without_backtrace());
    }
}

// How many devices of a type there are; ATen's code for it is loaded.
Devices count_devices(const std::string& type);

// Of a model's weights of that type there, once ATen has its code for the device and is told of the threads. Throws
// std::invalid_argument where the model, the device or the type is beyond the backend.
at::TensorOptions numbers_on(const Place& place, const ModelConfig& config, WeightType type);

} // namespace entrodraft::model::torch
