// The place and type of tensors, and ATen's errors as errors of ours. Called by torch/decoder and torch/trainer.
#pragma once

#include "model/families/config.h"
#include "model/torch/place.h"

#include <ATen/core/Tensor.h>
#include <stdexcept>
#include <string>

namespace entrodraft::model::torch {

// Runs the work. Rethrows errors of ATen without the stack after their message.
template <typename Work> void in_one_line(const Work& work) {
    try {
        work();
    } catch (const c10::Error& error) {
        throw std::runtime_error(std::string("torch: ") + error.what_without_backtrace());
    }
}

// Returns how many devices of a type there are, after loading ATen's code for the type.
Devices count_devices(const std::string& type);

// Returns options for a model's weights of that type there. Loads ATen's code for the device and sets the number of
// threads. Throws std::invalid_argument if the backend does not support the model, the device or the type.
at::TensorOptions numbers_on(const Place& place, const ModelConfig& config, WeightType type);

} // namespace entrodraft::model::torch
