// Turns JSON into a value for chat templates. Included by .cpp files only: nlohmann stays private.
#pragma once

#include "model/text/chat/value.h"

#include <nlohmann/json.hpp>

namespace entrodraft::model::jinja {

// Takes either nlohmann type. A binary value holds the digits of a whole number that does not fit 64 bits, which
// nlohmann's numbers would round. Throws TemplateError where it nests too deep.
template <typename Json> Value value_of_json(const Json& json) {
    if (json.is_null()) return Value(None{});
    if (json.is_boolean()) return Value(json.template get<bool>());
    if (json.is_number_unsigned() && json.template get<std::uint64_t>() > std::uint64_t{INT64_MAX})
        return Value::of_decimal(std::to_string(json.template get<std::uint64_t>()));
    if (json.is_binary()) return Value::of_decimal(std::string(json.get_binary().begin(), json.get_binary().end()));
    if (json.is_number_integer()) return Value(json.template get<std::int64_t>());
    if (json.is_number()) return Value(json.template get<double>());
    if (json.is_string()) return Value(json.template get<std::string>());
    if (json.is_array()) {
        std::vector<Value> items;
        for (const Json& item : json)
            items.push_back(value_of_json(item));
        return Value(std::move(items));
    }
    Dict dict;
    for (const auto& [key, value] : json.items())
        dict.set(Value(key), value_of_json(value));
    return Value(std::move(dict));
}

} // namespace entrodraft::model::jinja
