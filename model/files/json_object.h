// The fields of a JSON object from outside. Each is checked when it is asked for, and messages name place and field.
//
// It works for both nlohmann types. A model's config has other rules: a null counts as missing, and fields that nobody
// reads are refused. Use families/fields.h for it. The readers of costs, recordings and input lines call this file.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace entrodraft::model {

[[noreturn]] inline void refuse_value(const std::string& what, const std::string& reason) {
    throw std::runtime_error(what + " " + reason);
}

// Each returns the value; messages call it `what`. They throw std::runtime_error. 5.0 is not a whole number.
template <typename Json>
std::int64_t integer_of(const Json& value, const std::string& what, std::int64_t least, std::int64_t most) {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.template get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
    if (const std::int64_t number = fits ? value.template get<std::int64_t>() : 0;
        fits && number >= least && number <= most)
        return number;
    refuse_value(what, "must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}
template <typename Json> double number_of(const Json& value, const std::string& what) {
    if (!value.is_number()) refuse_value(what, "must be a number");
    return value.template get<double>();
}
template <typename Json> std::string text_of(const Json& value, const std::string& what) {
    if (!value.is_string()) refuse_value(what, "must be a string");
    return value.template get<std::string>();
}
template <typename Json> bool truth_of(const Json& value, const std::string& what) {
    if (!value.is_boolean()) refuse_value(what, "must be true or false");
    return value.template get<bool>();
}
template <typename Json> const Json& array_of(const Json& value, const std::string& what, const char* of = "a list") {
    if (!value.is_array()) refuse_value(what, std::string("must be ") + of);
    return value;
}

template <typename Json> class JsonObject {
  public:
    // `place` precedes the field's name in every message: "costs.json: field ". The object outlives this.
    JsonObject(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

    std::string name_of(const std::string& field) const { return place_ + field; }
    const Json* find(const char* field) const {
        const auto found = object_.find(field);
        return found == object_.end() ? nullptr : &*found;
    }
    const Json& at(const char* field) const {
        if (const Json* value = find(field)) return *value;
        refuse_value(name_of(field), "is missing");
    }
    template <typename T = std::int64_t> T integer(const char* field, T least, T most) const {
        return static_cast<T>(integer_of(at(field), name_of(field), least, most));
    }
    double number(const char* field) const { return number_of(at(field), name_of(field)); }
    std::string text(const char* field) const { return text_of(at(field), name_of(field)); }
    bool truth(const char* field) const { return truth_of(at(field), name_of(field)); }
    const Json& list(const char* field, const char* of = "a list") const {
        return array_of(at(field), name_of(field), of);
    }

  private:
    const Json& object_;
    std::string place_;
};

} // namespace entrodraft::model
