// Files of GGUF, versions 2 and 3, little-endian: what they say of a model, and its tensors. The format alone:
// gguf_model has the names. Called by gguf_model and the tokenizer.
#pragma once

#include "model/files/tensor_view.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::model {

struct GgufFile {
    std::string name;              // as messages have it
    nlohmann::json metadata;       // an object: values by their whole keys
    std::vector<TensorFile> parts; // under the file's names; dimensions as safetensors has them, the outermost first
};

// The file that `path` is or, of a directory without config.json, holds, of a split one the first part; none: neither.
// Files named mmproj-*.gguf are passed over: they are no models. Throws BadFile where there are several.
std::optional<std::filesystem::path> gguf_file_of(const std::filesystem::path& path);
// Of NAME-00001-of-0000N.gguf, or another of them, all; of any other name itself. Pure.
std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& file);
// Maps the file, of a split one all parts, and reads the headers. Throws BadFile.
GgufFile open_gguf(const std::filesystem::path& path);

} // namespace entrodraft::model
