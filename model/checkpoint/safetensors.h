// Reads one safetensors file: memory-mapped, its header checked whole.
//
// Format: https://github.com/huggingface/safetensors (README, "Format"). A file is hostile until read: everything the
// reference reader rejects is rejected here with file, place and reason, and duplicate tensor names too. Linear in the
// header's length (up to sorting), and no DOM is made: a header of 100 MB is a legal one. Knows nothing of models.
// Called by checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

struct HeaderEntry {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0; // bytes into the data
    std::uint64_t end = 0;
};

// Tensors in the order of their data, which they cover without hole or overlap. Throws BadFile with `file`, the
// tensor and the reason. Local.
std::vector<HeaderEntry> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                  const std::string& file);

} // namespace entrodraft::model
