// Parses one line of JSON from outside, which may be wrong. Private to this module, because it includes nlohmann::json.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

using Json = nlohmann::ordered_json; // fields stay in the order written

// Returns the object on a line. Throws std::runtime_error with the reason in plain words: no JSON, no object, a field
// given twice, or nested deeper than `max_depth`.
constexpr int kMaxDepth = 64;
Json parse_json_line(std::string_view line, int max_depth = kMaxDepth);

// Returns the values of these fields of the object on `line` as compact text with exactly the same meaning. Numbers
// that a double would round stay as they are written; all else is as from compact(). Reads the line once more at most.
std::map<std::string, std::string> compact_fields(std::string_view line, const Json& object,
                                                  const std::vector<std::string>& names);
std::string compact_field(std::string_view line, const Json& object, const std::string& name);
// Returns the id of input line `number` (from 1) as compact text; the number if the line has no id.
std::string id_in(std::string_view line, const Json& object, std::int64_t number);

// Turns whole numbers of the object on `line` that do not fit 64 bits into binary values: their digits, which a double
// would round. model::jinja::value_of_json reads such values. This covers only the values of `fields` of the object, or
// of its body for a line of OpenAI's API; all fields if `fields` is empty.
void keep_large_integers(std::string_view line, Json& object, const std::vector<std::string>& fields = {});

// Returns compact text. Never throws on bad UTF-8 in a message (it becomes U+FFFD).
std::string compact(const Json& json);
// Returns text over several lines, for results in files and on stdout: two spaces a level, a newline at the end.
std::string indented(const Json& json);

} // namespace entrodraft::launch
