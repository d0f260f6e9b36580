// Reads safetensors files: memory-mapped, single or sharded by an index, every header checked whole.
//
// Format: https://github.com/huggingface/safetensors (README, "Format"). A file is hostile until read:
// everything the reference reader rejects is rejected here with file, place and reason, and duplicate
// tensor names too. Knows nothing of models. Called by decoder, families/names and inspect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::model {

enum class DiskType { float32, float16, bfloat16, other };

std::size_t element_bits(const std::string& safetensors_dtype); // throws BadFile on an unknown name

// Where a tensor lies. `bytes` points into the mapping and lives as long as the Checkpoint.
struct TensorView {
    std::string name;
    std::string dtype; // as in the file: "F16", "BF16", "F32", ...
    DiskType type = DiskType::other;
    std::vector<std::int64_t> shape;  // [] is one element
    std::span<const std::byte> bytes; // not necessarily aligned
    const std::string* file = nullptr;
};

// All tensors of a checkpoint directory: model.safetensors, or the files that
// model.safetensors.index.json names (each a plain file name beside it).
class Checkpoint {
  public:
    // Maps the files and reads their headers. Throws BadFile. Local.
    static Checkpoint open(const std::filesystem::path& directory);
    // One file by itself. Throws BadFile. Local.
    static Checkpoint open_file(const std::filesystem::path& file);

    bool has(const std::string& name) const;
    // Throws BadFile naming the tensor and the directory when it is missing. Local.
    const TensorView& tensor(const std::string& name) const;
    const std::map<std::string, TensorView>& tensors() const { return tensors_; }
    std::uint64_t total_bytes() const { return total_bytes_; } // tensor data over all files

  private:
    struct Mapping;
    void add(const std::filesystem::path& file);

    std::filesystem::path where_;
    std::vector<std::shared_ptr<Mapping>> mappings_;
    std::map<std::string, TensorView> tensors_;
    std::uint64_t total_bytes_ = 0;
};

} // namespace entrodraft::model
