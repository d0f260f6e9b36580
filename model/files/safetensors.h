// Reads one safetensors file, memory-mapped, and checks its whole header. Also makes the beginning of a new file.
//
// Format: https://github.com/huggingface/safetensors (README, "Format"). A file is untrusted. Everything that the
// reference reader rejects is rejected here with file, place and reason, and so are duplicate tensor names. Reading
// takes time linear in the header's length (except for sorting). It makes no DOM, because a header of 100 MB is legal.
// It does not depend on models. Called by checkpoint, and by the code that saves drafts.
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

// Returns the tensors in the order of their data, which they cover without hole or overlap. Throws BadFile with `file`,
// the tensor and the reason.
std::vector<HeaderEntry> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                  const std::string& file);

// A tensor to write.
struct TensorBytes {
    std::string name;
    std::string dtype; // "F32", ...
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
};
// Returns the bytes that precede the tensors' bytes, one after another, in such a file. Names are distinct. Pure.
std::string safetensors_beginning(std::span<const TensorBytes> tensors);

} // namespace entrodraft::model
