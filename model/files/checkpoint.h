// All tensors of a checkpoint directory, in any kind of file: safetensors or pickled by torch, a single file or shards
// that an index names. Files are memory-mapped: opening them reads only their headers. Tensors may also be in no file
// (generated values). A Checkpoint does not depend on models and converts nothing. Called by decoder, families and
// inspect.
#pragma once

#include "model/files/mapped_file.h"
#include "model/files/tensor_view.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace entrodraft::model {

// Opens the first of these that a directory holds: model.safetensors, model.safetensors.index.json, pytorch_model.bin,
// pytorch_model.bin.index.json. An index names plain files in the same directory.
class Checkpoint {
  public:
    // Maps the files and reads their headers, or those of the GGUF file that `directory` is or holds. Where config.json
    // there says that matrices are quantised, each is one tensor (quantized.h). Throws BadFile.
    static Checkpoint open(const std::filesystem::path& directory);
    // Opens a single file: by torch where its name ends in .bin, .pt or .pth, else safetensors. Throws BadFile.
    static Checkpoint open_file(const std::filesystem::path& file);
    // Makes one from tensors of DiskType::generated, whose elements would take `element_bytes` each in a file.
    static Checkpoint generated(std::vector<TensorView> tensors, std::size_t element_bytes);

    // A tensor of `from`, where it may have another name.
    struct Part {
        std::string name;
        const Checkpoint* from;
        std::string stored_name;
    };
    // Makes one from tensors of others and shares their files. Messages name `where`. Throws BadFile if one is missing.
    static Checkpoint composed(std::filesystem::path where, const std::vector<Part>& parts);

    bool has(const std::string& name) const;
    // Throws BadFile naming the tensor and the directory when it is missing.
    const TensorView& tensor(const std::string& name) const;
    const std::map<std::string, TensorView>& tensors() const { return tensors_; }
    std::vector<FileIdentity> files() const;                   // files of weights, in the order of their names
    std::uint64_t total_bytes() const { return total_bytes_; } // tensor data over all files

  private:
    void add(const std::filesystem::path& file);
    void add(TensorFile file);
    void add_directory(const std::filesystem::path& directory);
    void add_shards(const std::filesystem::path& directory, const std::filesystem::path& index);

    std::filesystem::path where_;
    std::vector<std::shared_ptr<const MappedFile>> mappings_;
    std::map<std::string, TensorView> tensors_;
    std::uint64_t total_bytes_ = 0;
};

} // namespace entrodraft::model
