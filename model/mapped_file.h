// A regular file mapped for reading, for as long as the object lives: opening copies nothing, and a page is read when
// it is first looked at. Knows no format. Called by safetensors and zip_archive.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace entrodraft::model {

class MappedFile {
  public:
    // Throws BadFile where it cannot be opened, is no regular file, is shorter than min_bytes (`format` says of what
    // kind it should be), or is the pointer that Git LFS leaves in place of a file. Local.
    MappedFile(const std::filesystem::path& path, std::size_t min_bytes, std::string_view format);
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    const std::string& name() const { return name_; } // the path, as messages show it
    std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

  private:
    std::string name_;
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace entrodraft::model
