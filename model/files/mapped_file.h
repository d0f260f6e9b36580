// A regular file mapped for reading, for as long as the object lives: opening copies nothing, and a page is read when
// it is first looked at. Knows no format. Called by readers of checkpoints, corpora and tables.
//
// Whoever may write the file can change it under the program. A part that is cut off is SIGBUS where it is read
// (mapped_file_at names the file); other contents are what the reader sees: it may trust no value that it read before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
    // kind it should be), or is the pointer that Git LFS leaves in place of a file.
    MappedFile(const std::filesystem::path& path, std::size_t min_bytes, std::string_view format);
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    const std::string& name() const { return name_; } // the path, as messages show it
    const FileIdentity& identity() const { return identity_; }
    std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
    std::string_view text() const { return {static_cast<const char*>(data_), size_}; } // the same
    // True where the file under this name is still the mapped one, but has another size or time of change. A file that
    // was removed or replaced by another is not changed.
    bool is_changed() const;

    static constexpr std::size_t kMaxMapped = 4096; // files at once

  private:
    void unmap();

    std::string name_;
    FileIdentity identity_;
    void* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t place_ = 0; // in the table of all that are mapped
};

// The name of the mapped file that holds the address; null: none does. For handlers of SIGBUS.
const char* mapped_file_at(const void* address);

// Names of files that have changed while they were mapped, each once: those mapped now, and those no longer mapped.
// Not beside threads that map files.
std::vector<std::string> take_changed_files();

} // namespace entrodraft::model
