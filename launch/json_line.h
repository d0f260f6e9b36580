// One line of JSON from outside, parsed with suspicion. Private to this room: brings nlohmann::json along.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace entrodraft::launch {

using Json = nlohmann::ordered_json; // fields stay in the order written

// The object on a line. Throws std::runtime_error with the reason, in words for a person: no JSON, no object,
// a field given twice, nested deeper than 64. Local.
Json parse_json_line(std::string_view line);

// Compact text; never throws on bad UTF-8 in a message (it becomes U+FFFD). Local.
std::string compact(const Json& json);
// The same over several lines, as results in files and on stdout are: two spaces a level, a newline at the end.
std::string indented(const Json& json);

} // namespace entrodraft::launch
