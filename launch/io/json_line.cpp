// Parses one line of JSON from outside: see json_line.h.
#include "launch/io/json_line.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

namespace entrodraft::launch {

namespace {

bool has_fractions(const Json& json) {
    if (json.is_number_float()) return true;
    return json.is_structured() &&
           std::any_of(json.begin(), json.end(), [](const Json& part) { return has_fractions(part); });
}

// Returns the digits of a decimal number, without zeros on either side, and the power of ten to multiply them with.
// Returns nothing if that power is out of range.
std::optional<std::pair<std::string, std::int64_t>> decimal(const std::string& number) {
    const std::size_t exponent_at = std::min(number.find_first_of("eE"), number.size());
    std::int64_t exponent = 0;
    if (exponent_at < number.size()) {
        const std::size_t digits = exponent_at + (number[exponent_at + 1] == '+' ? 2 : 1);
        if (std::from_chars(number.data() + digits, number.data() + number.size(), exponent).ec != std::errc{})
            return std::nullopt;
    }
    std::string digits = number.substr(0, exponent_at);
    if (const std::size_t point = digits.find('.'); point != std::string::npos) {
        exponent -= static_cast<std::int64_t>(digits.size() - point - 1);
        digits.erase(point, 1);
    }
    const std::string sign = digits.front() == '-' ? "-" : "";
    digits.erase(0, std::min(digits.find_first_not_of("-0"), digits.size()));
    const std::size_t end = digits.find_last_not_of('0') + 1;
    exponent = digits.empty() ? 0 : exponent + static_cast<std::int64_t>(digits.size() - end);
    digits.erase(end);
    return std::pair(sign + digits, exponent);
}

// Returns the numbers on a line of JSON, as they are written.
std::vector<std::string_view> numbers_of(std::string_view line) {
    std::vector<std::string_view> numbers;
    for (std::size_t at = 0; at < line.size();) {
        if (line[at] == '"') {
            while (line[++at] != '"')
                if (line[at] == '\\') ++at;
            ++at;
        } else if (line[at] == '-' || std::isdigit(static_cast<unsigned char>(line[at]))) {
            const std::size_t end = std::min(line.find_first_not_of("+-.0123456789eE", at), line.size());
            numbers.push_back(line.substr(at, end - at));
            at = end;
        } else {
            ++at;
        }
    }
    return numbers;
}

// Writes JSON like compact(), except for numbers that a double would round. `numbers`: the written numbers, from the
// first of `json` on; those of `json` are removed.
std::string exact_text(const Json& json, std::span<const std::string_view>& numbers) {
    std::string text;
    if (json.is_number()) {
        const std::string written(numbers.front());
        numbers = numbers.subspan(1);
        text = compact(json);
        if (json.is_number_float() && (!decimal(written) || decimal(written) != decimal(text))) text = written;
    } else if (json.is_array()) {
        for (const Json& part : json)
            text += (text.empty() ? "" : ",") + exact_text(part, numbers);
        text = "[" + text + "]";
    } else if (json.is_object()) {
        for (const auto& [name, part] : json.items())
            text += (text.empty() ? "" : ",") + compact(Json(name)) + ":" + exact_text(part, numbers);
        text = "{" + text + "}";
    } else {
        text = compact(json);
    }
    return text;
}

// `numbers`: see exact_text(). `fields`: names of fields in whose values digits are kept. `is_kept`: keeps them
// everywhere in `json`. `within`: the name of a field whose value has these fields, too.
void keep_digits(Json& json, std::span<const std::string_view>& numbers, const std::vector<std::string>* fields,
                 bool is_kept, const char* within) {
    if (json.is_number()) {
        const std::string_view written = numbers.front();
        numbers = numbers.subspan(1);
        if (is_kept && json.is_number_float() && written.find_first_of(".eE") == std::string_view::npos)
            json = Json::binary({written.begin(), written.end()});
    } else if (json.is_array()) {
        for (Json& part : json)
            keep_digits(part, numbers, nullptr, is_kept, nullptr);
    } else if (json.is_object()) {
        for (auto& [name, part] : json.items())
            keep_digits(part, numbers, within != nullptr && name == within ? fields : nullptr,
                        is_kept || (fields != nullptr && std::ranges::find(*fields, name) != fields->end()), nullptr);
    }
}

} // namespace

void keep_large_integers(std::string_view line, Json& object, const std::vector<std::string>& fields) {
    if (!has_fractions(object)) return;
    const std::vector<std::string_view> all = numbers_of(line);
    std::span<const std::string_view> numbers = all;
    keep_digits(object, numbers, &fields, fields.empty(), "body");
}

std::map<std::string, std::string> compact_fields(std::string_view line, const Json& object,
                                                  const std::vector<std::string>& names) {
    std::map<std::string, std::string> texts;
    for (const std::string& name : names)
        texts[name];
    bool rounds = false;
    for (const auto& [name, value] : object.items())
        if (const auto wanted = texts.find(name); wanted != texts.end()) {
            wanted->second = compact(value);
            rounds = rounds || has_fractions(value);
        }
    if (!rounds) return texts;
    const std::vector<std::string_view> all = numbers_of(line);
    std::span<const std::string_view> numbers = all;
    for (const auto& [name, value] : object.items()) {
        const std::string text = exact_text(value, numbers);
        if (texts.contains(name)) texts[name] = text;
    }
    return texts;
}

std::string compact_field(std::string_view line, const Json& object, const std::string& name) {
    return compact_fields(line, object, {name}).at(name);
}

std::string id_in(std::string_view line, const Json& object, std::int64_t number) {
    return object.contains("id") ? compact_field(line, object, "id") : std::to_string(number);
}

Json parse_json_line(std::string_view line, int max_depth) {
    std::vector<std::set<std::string>> fields; // one set for each open object
    const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
        const bool begins = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
        if (begins && depth >= max_depth)
            throw std::runtime_error(fmt::format("JSON nested deeper than {}", max_depth));
        if (event == Json::parse_event_t::object_start) fields.emplace_back();
        if (event == Json::parse_event_t::object_end) fields.pop_back();
        if (event == Json::parse_event_t::key && !fields.back().insert(value.get<std::string>()).second)
            throw std::runtime_error(fmt::format("field '{}' is given twice", value.get<std::string>()));
        return true;
    };
    Json json;
    try {
        json = Json::parse(line, watch);
    } catch (const Json::parse_error& error) {
        throw std::runtime_error(fmt::format("not JSON: unexpected text at byte {}", error.byte));
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
