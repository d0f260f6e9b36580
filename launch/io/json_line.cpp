// One line of JSON from outside: see json_line.h.
#include "launch/io/json_line.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

namespace entrodraft::launch {

namespace {

bool has_fractions(const Json& json) {
    if (json.is_number_float()) return true;
    return json.is_structured() &&
           std::any_of(json.begin(), json.end(), [](const Json& part) { return has_fractions(part); });
}

// A decimal number as its digits, without zeros on either side, and the power of ten that they are times; nothing where
// that power is out of all bounds.
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

// The texts of some fields of the object that is read, with numbers as exact as they are written.
class FieldTexts : public nlohmann::json_sax<Json> {
  public:
    explicit FieldTexts(const std::vector<std::string>& names) {
        for (const std::string& name : names)
            texts_[name];
    }
    std::map<std::string, std::string> take() { return std::move(texts_); }

    bool null() override { return value("null"); }
    bool boolean(bool is_true) override { return value(is_true ? "true" : "false"); }
    bool number_integer(std::int64_t number) override { return value(std::to_string(number)); }
    bool number_unsigned(std::uint64_t number) override { return value(std::to_string(number)); }
    bool number_float(double number, const std::string& written) override {
        const std::string shortest = compact(Json(number));
        const auto exact = decimal(written);
        return value(exact && exact == decimal(shortest) ? shortest : written);
    }
    bool string(std::string& words) override { return value(compact(Json(words))); }
    bool binary(Json::binary_t&) override { return true; } // JSON has none
    bool start_object(std::size_t) override { return begin("{"); }
    bool end_object() override { return end("}"); }
    bool start_array(std::size_t) override { return begin("["); }
    bool end_array() override { return end("]"); }
    bool key(std::string& name) override {
        if (depth_ == 1) {
            const auto wanted = texts_.find(name);
            text_ = wanted != texts_.end() ? &wanted->second : nullptr;
        } else if (text_ != nullptr) {
            *text_ += (text_->back() == '{' ? "" : ",") + compact(Json(name)) + ":";
        }
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  private:
    bool value(const std::string& text) {
        if (text_ == nullptr) return true;
        const bool is_next = !text_->empty() && text_->back() != '[' && text_->back() != ':';
        *text_ += (is_next ? "," : "") + text;
        return true;
    }
    bool begin(const char* bracket) { return depth_++ == 0 || value(bracket); }
    bool end(const char* bracket) {
        if (--depth_ > 0 && text_ != nullptr) *text_ += bracket;
        return true;
    }

    std::map<std::string, std::string> texts_;
    std::string* text_ = nullptr; // of the field that is read, if it is wanted
    int depth_ = 0;
};

} // namespace

std::map<std::string, std::string> compact_fields(std::string_view line, const Json& object,
                                                  const std::vector<std::string>& names) {
    std::map<std::string, std::string> texts;
    std::vector<std::string> fractions;
    for (const std::string& name : names)
        if (has_fractions(object[name]))
            fractions.push_back(name);
        else
            texts[name] = compact(object[name]);
    if (fractions.empty()) return texts;
    FieldTexts exact(fractions);
    Json::sax_parse(line, &exact);
    texts.merge(exact.take());
    return texts;
}

std::string compact_field(std::string_view line, const Json& object, const std::string& name) {
    return compact_fields(line, object, {name}).at(name);
}

std::string id_in(std::string_view line, const Json& object, std::int64_t number) {
    return object.contains("id") ? compact_field(line, object, "id") : std::to_string(number);
}

Json parse_json_line(std::string_view line, int max_depth) {
    std::vector<std::set<std::string>> fields; // of each open object
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
