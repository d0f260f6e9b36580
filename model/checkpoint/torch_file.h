// Reads one file of torch.save (pytorch_model.bin): a zip archive with a pickled dict of tensors, memory-mapped.
// Runs nothing that the pickle asks for and copies no tensor; views of one storage (tied weights) share its bytes.
// Older files, without the zip, are refused. Knows nothing of models. Called by checkpoint.
#pragma once

#include "model/checkpoint/tensor_view.h"

#include <filesystem>

namespace entrodraft::model {

// Every tensor lies row-major within its storage. Throws BadFile. Local.
TensorFile open_torch_file(const std::filesystem::path& path);

} // namespace entrodraft::model
