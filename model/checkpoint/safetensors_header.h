// The JSON header of a safetensors file: what it says, checked whole, against the size of the data that follows.
//
// Linear in the header's length (up to sorting), and no DOM is made: a header of 100 MB is a legal one. No files
// are opened here. Called by safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000; // the format's own limit

struct HeaderEntry {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0; // bytes into the data
    std::uint64_t end = 0;
};

// Tensors in the order of the header. They cover the data without hole or overlap. Throws BadFile with `file`, the
// tensor and the reason. Local.
std::vector<HeaderEntry> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                  const std::string& file);

} // namespace entrodraft::model
