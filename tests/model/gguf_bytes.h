// The bytes of GGUF files, as tests write them. Called by tests only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace entrodraft::model::gguf_test {

using nlohmann::json;

template <typename T> std::string bytes_of(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}
inline std::string bytes_of_text(const std::string& text) {
    return bytes_of<std::uint64_t>(text.size()) + text;
}

inline std::uint32_t kind_of(const json& value) {
    return value.is_string() ? 8 : value.is_boolean() ? 7 : value.is_number_float() ? 6 : value.is_array() ? 9 : 4;
}
inline std::string bytes_of_value(const json& value) {
    if (value.is_string()) return bytes_of_text(value.get<std::string>());
    if (value.is_boolean()) return bytes_of<std::uint8_t>(value.get<bool>() ? 1 : 0);
    if (value.is_number_float()) return bytes_of(value.get<float>());
    if (!value.is_array()) return bytes_of(value.get<std::uint32_t>());
    std::string bytes = bytes_of(kind_of(value.at(0))) + bytes_of<std::uint64_t>(value.size());
    for (const json& each : value)
        bytes += bytes_of_value(each);
    return bytes;
}

struct TensorEntry {
    std::string name;
    std::vector<std::uint64_t> dims; // the innermost first
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
};

// Behind the header `data` zeros.
inline std::string gguf(const json& metadata, const std::vector<TensorEntry>& tensors = {}, std::size_t data = 0) {
    std::string bytes = "GGUF" + bytes_of<std::uint32_t>(3) + bytes_of<std::uint64_t>(tensors.size()) +
                        bytes_of<std::uint64_t>(metadata.size());
    for (const auto& [key, value] : metadata.items())
        bytes += bytes_of_text(key) + bytes_of(kind_of(value)) + bytes_of_value(value);
    for (const TensorEntry& tensor : tensors) {
        bytes += bytes_of_text(tensor.name) + bytes_of(static_cast<std::uint32_t>(tensor.dims.size()));
        for (const std::uint64_t dim : tensor.dims)
            bytes += bytes_of(dim);
        bytes += bytes_of(tensor.type) + bytes_of(tensor.offset);
    }
    bytes.resize((bytes.size() + 31) / 32 * 32 + data);
    return bytes;
}

} // namespace entrodraft::model::gguf_test
