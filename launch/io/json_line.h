// One line of JSON from outside, parsed with suspicion. Private to this module: brings nlohmann::json along.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

using Json = nlohmann::ordered_json; // fields stay in the order written

// The object on a line. Throws std::runtime_error with the reason, in words for a person: no JSON, no object,
// a field given twice, nested deeper than `max_depth`.
constexpr int kMaxDepth = 64;
Json parse_json_line(std::string_view line, int max_depth = kMaxDepth);

// The values of these fields of the object on `line`, as compact text that says the very same: numbers that a double
// would round are as they are written, all else is as compact() has it. Reads the line once more at most.
std::map<std::string, std::string> compact_fields(std::string_view line, const Json& object,
                                                  const std::vector<std::string>& names);
std::string compact_field(std::string_view line, const Json& object, const std::string& name);
// The id of input line `number` (from 1) as compact text; its number where it has none.
std::string id_in(std::string_view line, const Json& object, std::int64_t number);

// Makes those numbers of the object on `line` that are whole and that 64 bits do not hold binary values: their digits,
// which a double would round, as model::jinja::value_of_json reads them. Only in the values of `fields` of the object,
// or of its body where it is a line of OpenAI's API; of all fields where `fields` has none.
void keep_large_integers(std::string_view line, Json& object, const std::vector<std::string>& fields = {});

// Compact text; never throws on bad UTF-8 in a message (it becomes U+FFFD).
std::string compact(const Json& json);
// The same over several lines, as results in files and on stdout are: two spaces a level, a newline at the end.
std::string indented(const Json& json);

} // namespace entrodraft::launch
