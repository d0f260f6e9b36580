// The shapes of a checkpoint's tensors follow from its config: a file is checked by them, and weights are made up.
#pragma once

#include "model/families/config.h"
#include "model/files/checkpoint.h"

#include <cstdint>

namespace entrodraft::model {

// Throws BadFile that names the tensor where one is missing, has a shape other than the config calls for or a type
// that is not F32, F16 or BF16, or where the file holds a tensor that this model would leave out. Of an encoder too,
// where the model has one.
void check_shapes(const ModelConfig& config, const Checkpoint& checkpoint);

// The tensors that the config calls for, without files: matrices and learned positions of random weights, by the seed
// and the tensor's name, norms that multiply by 1, biases of 0.
Checkpoint random_checkpoint(const ModelConfig& config, std::uint64_t seed);

} // namespace entrodraft::model
