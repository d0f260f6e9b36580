// Reads JSON from untrusted sources. Size and depth are limited, the whole text must be one value in valid UTF-8, and a
// key may appear only once in an object. Callers know the meaning of fields. Only .cpp files and families/fields.h
// include this, so nlohmann stays private. Readers of JSON in every module call it.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace entrodraft::model {

constexpr std::size_t kMaxJsonDepth = 128;                     // nested objects and arrays
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20; // tokenizer_config.json lists every added token

// Returns the file's text. Throws BadFile where it is missing, not a regular file, or longer than max_bytes.
std::string read_text_file(const std::filesystem::path& file, std::size_t max_bytes);

// Whole numbers that do not fit 64 bits. Files written for other readers have them: "model_max_length" without a
// maximum is 10^30.
enum class LargeNumbers { refused, as_floating_point };

// Returns the value that the file holds. Throws BadFile with file, line and reason.
nlohmann::json read_json_file(const std::filesystem::path& file, std::size_t max_bytes,
                              LargeNumbers large = LargeNumbers::refused);

// Returns whether the file exists. A link with a missing target exists too, because opening it gives the message. A
// file that cannot be examined counts as missing.
bool file_exists(const std::filesystem::path& file);

// Returns the object in a file of at most kMaxConfigBytes, large numbers allowed. Throws BadFile.
nlohmann::json read_object(const std::filesystem::path& file);
// Returns an empty object where there is no file.
nlohmann::json read_optional_object(const std::filesystem::path& file);

// Does read_json_file from memory; `what` replaces the file in messages.
nlohmann::json parse_json(std::string_view text, const std::string& what, LargeNumbers large = LargeNumbers::refused);

// Runs a handler of nlohmann's SAX interface over text, which must be one JSON value and nothing else, without making a
// DOM. The handler's exceptions pass through. Throws BadFile with `what`, line, byte and reason.
void scan_json(std::string_view text, const std::string& what, nlohmann::json_sax<nlohmann::json>& handler,
               LargeNumbers large = LargeNumbers::refused);

} // namespace entrodraft::model
