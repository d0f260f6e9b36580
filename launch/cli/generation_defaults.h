// Takes defaults of requests from the target's generation_config.json. Options of the command line replace them. So do
// fields of input lines (launch/io/request_fields.cpp).
#pragma once

#include "launch/cli/options.h"
#include "model/families/generation_config.h"

#include <functional>
#include <nlohmann/json.hpp>

namespace entrodraft::launch {

// Reads the file of `models.target` unless the options exclude it. Puts what people should know of it into
// `models.notes`. Throws BadOption and model::BadFile.
void take_generation_config(ModelOptions& models, RequestDefaults& requests);
// Does the same with a file that has been read.
void take_generation_config(const model::GenerationConfig& file, ModelOptions& models, RequestDefaults& requests);

// Returns the settings that change texts and have no option, by the file's names, for records of a run.
nlohmann::json json_of_file_rules(const RequestDefaults& requests);
// Applies the file's lengths to a request whose prompt is known. The file counts new tokens from the end of
// transformers' prompt, which is before a forced BOS. `says` returns whether the line has a field of this name. Throws
// std::runtime_error if no room is left for an answer.
void set_lengths(const FileLengths& file, const std::function<bool(const char*)>& says, int max_positions,
                 spec::Request& request);

} // namespace entrodraft::launch
