// Files of GGUF, versions 2 and 3, little-endian: what they say of a model, and its tensors. The format alone:
// gguf_model has the names. Called by gguf_model and the tokenizer.
#pragma once

#include "model/checkpoint/tensor_view.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

namespace entrodraft::model {

struct GgufFile {
    nlohmann::json metadata; // an object: values by their whole keys
    TensorFile tensors;      // under the file's names; dimensions as safetensors has them, the outermost first
};

// The file that `path` is or, of a directory without config.json, holds; none: neither. Throws BadFile where there are
// several. Local.
std::optional<std::filesystem::path> gguf_file_of(const std::filesystem::path& path);
// Maps the file and reads its header. Throws BadFile. Local.
GgufFile open_gguf(const std::filesystem::path& path);

} // namespace entrodraft::model
