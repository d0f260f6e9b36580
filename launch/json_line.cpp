// One line of JSON from outside: see json_line.h.
#include "entrodraft/launch/json_line.h"

#include <set>
#include <stdexcept>
#include <vector>

namespace entrodraft::launch {

Json parse_json_line(std::string_view line) {
    constexpr int kDeepest = 64;
    std::vector<std::set<std::string>> fields; // of each open object
    const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
        if (depth > kDeepest) throw std::runtime_error("JSON nested deeper than " + std::to_string(kDeepest));
        if (event == Json::parse_event_t::object_start) fields.emplace_back();
        if (event == Json::parse_event_t::object_end) fields.pop_back();
        if (event == Json::parse_event_t::key && !fields.back().insert(value.get<std::string>()).second)
            throw std::runtime_error("field '" + value.get<std::string>() + "' is given twice");
        return true;
    };
    Json json;
    try {
        json = Json::parse(line, watch);
    } catch (const Json::parse_error& error) {
        throw std::runtime_error("not JSON: unexpected text at byte " + std::to_string(error.byte));
    } catch (const Json::exception&) {
        throw std::runtime_error("a number is out of range");
    }
    if (!json.is_object()) throw std::runtime_error("not a JSON object");
    return json;
}

std::string compact(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string indented(const Json& json) {
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace entrodraft::launch
