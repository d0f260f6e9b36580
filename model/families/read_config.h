// Turns config.json, or a GGUF file's metadata in its place, into a ModelConfig.
#pragma once

#include "model/families/config.h"

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace entrodraft::model {

// Reads directory/config.json, and the beginnings and ends of texts from its generation defaults (generation_config.h).
// Throws BadFile naming the file, the field and the remedy.
ModelConfig read_config(const std::filesystem::path& directory);

// Returns the fields of a config.json's decoder. In a model that reads images too, they are those of its text_config
// and, where it lacks a field, of the object around it. `file` begins every message. Throws BadFile.
nlohmann::json decoder_fields(nlohmann::json json, const std::string& file);
// Reads a decoder's config.json. Throws BadFile.
ModelConfig read_config(const nlohmann::json& json, const std::string& file);

} // namespace entrodraft::model
