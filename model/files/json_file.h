// Reads JSON that nobody has vouched for: size and depth are capped, the whole text must be one value in valid
// UTF-8, and no key may appear twice in an object. Knows nothing of what the fields mean.
// Only .cpp files and families/fields.h include this: nlohmann stays private. Called by readers of JSON in every
// module.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace entrodraft::model {

constexpr std::size_t kMaxJsonDepth = 128;                     // objects and arrays in one another
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20; // tokenizer_config.json lists every added token

// The file's text. Throws BadFile where it is missing, not a regular file, or longer than max_bytes.
std::string read_text_file(const std::filesystem::path& file, std::size_t max_bytes);

// Whole numbers that no 64 bits hold. Files that people's tools have written for other readers have them:
// "model_max_length" without a maximum is 10^30.
enum class LargeNumbers { refused, as_floating_point };

// The value that the file holds. Throws BadFile with file, line and reason.
nlohmann::json read_json_file(const std::filesystem::path& file, std::size_t max_bytes,
                              LargeNumbers large = LargeNumbers::refused);

// Whether the file exists; so does a link whose end is missing, since opening it has the message. What cannot be looked
// at counts as missing.
bool file_exists(const std::filesystem::path& file);

// The object in a file of at most kMaxConfigBytes, large numbers allowed. Throws BadFile.
nlohmann::json read_object(const std::filesystem::path& file);
// An empty one where there is no file.
nlohmann::json read_optional_object(const std::filesystem::path& file);

// read_json_file from memory; `what` replaces the file in messages.
nlohmann::json parse_json(std::string_view text, const std::string& what, LargeNumbers large = LargeNumbers::refused);

// Runs a handler of nlohmann's SAX interface over text, which must be one JSON value and nothing else; no DOM is
// made. Whatever the handler throws passes through. Throws BadFile with `what`, line, byte and reason.
void scan_json(std::string_view text, const std::string& what, nlohmann::json_sax<nlohmann::json>& handler,
               LargeNumbers large = LargeNumbers::refused);

} // namespace entrodraft::model
