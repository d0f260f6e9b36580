// Reads one safetensors file: memory-mapped, its header checked whole.
//
// Format: https://github.com/huggingface/safetensors (README, "Format"). A file is hostile until read: everything the
// reference reader rejects is rejected here with file, place and reason, and duplicate tensor names too. Knows
// nothing of models. Called by checkpoint.
#pragma once

#include "model/checkpoint/tensor_view.h"

#include <filesystem>

namespace entrodraft::model {

// Reads the header alone. Throws BadFile. Local.
TensorFile open_safetensors(const std::filesystem::path& path);

} // namespace entrodraft::model
