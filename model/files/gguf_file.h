// Reads GGUF files, versions 2 and 3, little-endian: their metadata and their tensors. This is the format alone;
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
    std::string name;              // as messages show it
    nlohmann::json metadata;       // an object: values by their whole keys
    std::vector<TensorFile> parts; // as named in the file; dimensions in safetensors' order, the outermost first
};

// Returns the file that `path` is, or that it holds if it is a directory without config.json. If the file is split,
// returns its first part. Skips mmproj-*.gguf, which are not models. Throws BadFile where there are several.
std::optional<std::filesystem::path> gguf_file_of(const std::filesystem::path& path);
// Returns all parts, if `file` is named like NAME-00001-of-0000N.gguf; else the file itself. Pure.
std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& file);
// Maps the file, or all its parts if it is split, and reads the headers. Throws BadFile.
GgufFile open_gguf(const std::filesystem::path& path);

} // namespace entrodraft::model
