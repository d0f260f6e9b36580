// Derives the shapes of a checkpoint's tensors from its config. They serve to check a file and to generate weights.
#pragma once

#include "model/families/config.h"
#include "model/files/checkpoint.h"

#include <cstdint>

namespace entrodraft::model {

// Throws BadFile that names the tensor if one is missing, has another shape than the config requires, or has a type
// that is not F32, F16 or BF16. Also throws it if the file holds a tensor that this model would leave out. Checks the
// encoder too, where the model has one.
void check_shapes(const ModelConfig& config, const Checkpoint& checkpoint);

// Makes the tensors that the config requires, without files. Matrices and learned positions have random weights, by the
// seed and the tensor's name; norms multiply by 1; biases are 0.
Checkpoint random_checkpoint(const ModelConfig& config, std::uint64_t seed);

} // namespace entrodraft::model
