// Reads one safetensors file: memory-mapped, its header checked whole. And what a file to write begins with.
//
// Format: https://github.com/huggingface/safetensors (README, "Format"). A file is hostile until read: everything the
// reference reader rejects is rejected here with file, place and reason, and duplicate tensor names too. Linear in the
// header's length (up to sorting), and no DOM is made: a header of 100 MB is a legal one. Knows nothing of models.
// Called by checkpoint, and
// by what saves drafts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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
// tensor and the reason.
std::vector<HeaderEntry> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                  const std::string& file);

// A tensor to write.
struct TensorBytes {
    std::string name;
    std::string dtype; // "F32", ...
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
};
// What goes before the bytes of the tensors, one after another, to make a file of them. The names are distinct. Pure.
std::string safetensors_beginning(std::span<const TensorBytes> tensors);

} // namespace entrodraft::model
