// A tensor as it lies in a file: name, type, shape and its bytes within the mapping. What every reader of weights
// gives; no arithmetic. Called by safetensors, torch_file, checkpoint and all that take weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

class MappedFile;

enum class DiskType { float32, float16, bfloat16, other };

DiskType disk_type(std::string_view dtype);       // by the names that safetensors uses
std::size_t element_bits(std::string_view dtype); // throws BadFile on a name that safetensors does not know

// `bytes` points into the mapping and lives as long as the Checkpoint.
struct TensorView {
    std::string name;
    std::string dtype; // "F16", "BF16", "F32", ...: safetensors' names, in every kind of file
    DiskType type = DiskType::other;
    std::vector<std::int64_t> shape;  // [] is one element; row-major
    std::span<const std::byte> bytes; // not necessarily aligned
    const std::string* file = nullptr;
};

// What one file holds. The names are distinct.
struct TensorFile {
    std::shared_ptr<const MappedFile> mapping;
    std::vector<TensorView> tensors;
    std::uint64_t data_bytes = 0; // of all tensors; bytes that several of them share count once
};

} // namespace entrodraft::model
