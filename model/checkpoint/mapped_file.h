// A regular file mapped for reading, for as long as the object lives: opening copies nothing, and a page is read when
// it is first looked at. Knows no format. Called by safetensors and zip_archive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace entrodraft::model {

// Which file of its host a mapped one is, and its last changes. Equal on two hosts that share a file system, as a rule.
struct FileIdentity {
    std::uint64_t device = 0; // a number of this host's alone
    std::uint64_t inode = 0;
    std::uint64_t bytes = 0;
    std::int64_t modified_ns = 0, changed_ns = 0; // contents; contents or attributes
};

class MappedFile {
  public:
    // Throws BadFile where it cannot be opened, is not a regular file, is shorter than min_bytes (`format` says of what
    // kind it should be), or is the pointer that Git LFS leaves in place of a file. Local.
    MappedFile(const std::filesystem::path& path, std::size_t min_bytes, std::string_view format);
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    const std::string& name() const { return name_; } // the path, as messages show it
    const FileIdentity& identity() const { return identity_; }
    std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
    std::string_view text() const { return {static_cast<const char*>(data_), size_}; } // the same

  private:
    std::string name_;
    FileIdentity identity_;
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace entrodraft::model
