// Maps a regular file for reading, as long as the object lives. Opening copies nothing; a page is read at its first
// use. It does not depend on formats. Readers of checkpoints, corpora and tables call it.
//
// Another process may change the file while it is mapped. Reading a part that was cut off raises SIGBUS (mapped_file_at
// names the file). The reader sees changed contents, so it must not trust a value that it read before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

// Identifies a file of a host, and its last changes. Two hosts that share a file system usually see equal ones.
struct FileIdentity {
    std::uint64_t device = 0; // meaningful only on this host
    std::uint64_t inode = 0;
    std::uint64_t bytes = 0;
    std::int64_t modified_ns = 0, changed_ns = 0; // of contents; of contents or attributes
};

class MappedFile {
  public:
    // Throws BadFile if it cannot be opened, is not a regular file, is shorter than min_bytes, or is the pointer that
    // Git LFS leaves in place of a file. `format` names the expected kind of file.
    MappedFile(const std::filesystem::path& path, std::size_t min_bytes, std::string_view format);
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    const std::string& name() const { return name_; } // the path, as in messages
    const FileIdentity& identity() const { return identity_; }
    std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
    std::string_view text() const { return {static_cast<const char*>(data_), size_}; } // the same bytes
    // Returns true if the file of this name is still the mapped one, but has another size or time of change. A file
    // that was removed or replaced by another is not changed.
    bool is_changed() const;

    static constexpr std::size_t kMaxMapped = 4096; // files at once

  private:
    void unmap();

    std::string name_;
    FileIdentity identity_;
    void* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t place_ = 0; // in the table of mapped files
};

// Returns the name of the mapped file that holds the address, or null. For handlers of SIGBUS.
const char* mapped_file_at(const void* address);

// Returns names of files that changed while they were mapped, each once: files mapped now, and files no longer mapped.
// Do not call it while other threads map files.
std::vector<std::string> take_changed_files();

} // namespace entrodraft::model
