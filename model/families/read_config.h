// config.json, or what a GGUF file says in its place, becomes a ModelConfig.
#pragma once

#include "model/families/config.h"

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace entrodraft::model {

// Reads directory/config.json, and of its generation defaults where texts begin and end (generation_config.h).
// Throws BadFile naming the file, the field and the remedy.
ModelConfig read_config(const std::filesystem::path& directory);

// The fields of a config.json's decoder: of a model that reads images too, those of its text_config and, where these
// say nothing, of what is around them. `file` is before every message. Throws BadFile.
nlohmann::json decoder_fields(nlohmann::json json, const std::string& file);
// Reads a decoder's config.json. Throws BadFile.
ModelConfig read_config(const nlohmann::json& json, const std::string& file);

} // namespace entrodraft::model
