// A tensor as it lies in a file, or as it is made up: name, type, shape and its bytes within the mapping. What every
// reader of weights gives, and the readers of one file; no arithmetic. Called by checkpoint and all that take weights.
#pragma once

#include "model/files/generated_values.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

class MappedFile;
struct QuantizedMatrix;

// generated: in no file; quantized: made up of several tensors (quantized.h).
enum class DiskType { float32, float16, bfloat16, generated, quantized, other };

// By the names that safetensors uses; in safetensors.cpp.
DiskType disk_type(std::string_view dtype);
std::size_t element_bits(std::string_view dtype); // throws BadFile on a name that safetensors does not know

// `bytes` points into the mapping and lives as long as the Checkpoint.
struct TensorView {
    std::string name;
    std::string dtype; // "F16", "BF16", "F32", ...: safetensors' names, in every kind of file
    DiskType type = DiskType::other;
    std::vector<std::int64_t> shape;  // [] is one element; row-major
    std::span<const std::byte> bytes; // not necessarily aligned; none of a generated one
    const std::string* file = nullptr;
    GeneratedValues generated = {};                        // of DiskType::generated
    std::shared_ptr<const QuantizedMatrix> quantized = {}; // of DiskType::quantized, whose codes `bytes` are
    bool is_part = false;                                  // of such a tensor, by which it is read
};

// What one file holds. The names are distinct.
struct TensorFile {
    std::shared_ptr<const MappedFile> mapping;
    std::vector<TensorView> tensors;
    std::uint64_t data_bytes = 0; // of all tensors; bytes that several of them share count once
};

// Of torch.save. Runs nothing that the pickle asks for and copies no tensor; views of one storage (tied weights) share
// its bytes, and every tensor lies row-major within its storage. Older files, without the zip, are refused. Throws
// BadFile. In torch_file.cpp.
TensorFile open_torch_file(const std::filesystem::path& path);
// Reads the header alone. Throws BadFile. In safetensors.cpp.
TensorFile open_safetensors(const std::filesystem::path& path);

} // namespace entrodraft::model
