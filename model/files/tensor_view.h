// A tensor in a file, or a generated one: its name, type and shape, and its bytes within the mapping. All readers of
// weights return it, and so do the readers of single files. It does no arithmetic. Called by checkpoint and all code
// that takes weights.
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

// generated: not in a file; quantized: made up of several tensors (quantized.h).
enum class DiskType { float32, float16, bfloat16, generated, quantized, other };

// `dtype`: a name that safetensors uses. In safetensors.cpp.
DiskType disk_type(std::string_view dtype);
std::size_t element_bits(std::string_view dtype); // throws BadFile on a name that safetensors does not know

// `bytes` points into the mapping and lives as long as the Checkpoint.
struct TensorView {
    std::string name;
    std::string dtype; // "F16", "BF16", "F32", ...: safetensors' names, in every kind of file
    DiskType type = DiskType::other;
    std::vector<std::int64_t> shape;  // [] is one element; row-major
    std::span<const std::byte> bytes; // not necessarily aligned; empty for a generated one
    const std::string* file = nullptr;
    GeneratedValues generated = {};                        // only for DiskType::generated
    std::shared_ptr<const QuantizedMatrix> quantized = {}; // only for DiskType::quantized; `bytes` are its codes
    bool is_part = false;                                  // part of such a tensor, and read through it
};

// The contents of one file. The names are distinct.
struct TensorFile {
    std::shared_ptr<const MappedFile> mapping;
    std::vector<TensorView> tensors;
    std::uint64_t data_bytes = 0; // of all tensors; shared bytes count once
};

// Opens a file of torch.save. It does not run code of the pickle and does not copy tensors. Views of one storage (tied
// weights) share its bytes; every tensor must lie row-major within its storage. Older files, without the zip, are
// refused. Throws BadFile. In torch_file.cpp.
TensorFile open_torch_file(const std::filesystem::path& path);
// Reads only the header. Throws BadFile. In safetensors.cpp.
TensorFile open_safetensors(const std::filesystem::path& path);

} // namespace entrodraft::model
