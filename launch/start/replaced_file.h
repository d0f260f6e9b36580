// Replaces a file only once the new one is whole: the new file is written next to the old one and then renamed.
//
// This is for results that are useless if incomplete. If the name is a link, it stays a link: its target is replaced.
// The new file has the old file's mode. Called by build-table, generate, simulate, tune and the benches.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace entrodraft::launch {

// Throws std::runtime_error naming `file` if it clearly cannot be replaced: it exists and is not a regular file, or its
// directory is missing or not writable.
void require_replaceable(const std::string& file);

// Returns whether two names mean one file, which need not exist yet.
bool are_one_file(const std::string& a, const std::string& b);

class ReplacedFile {
  public:
    // Opens a new file next to `file`. Throws std::runtime_error naming it, as the other calls do.
    explicit ReplacedFile(const std::string& file);
    // Without commit(), nothing is left and `file` is unchanged.
    ~ReplacedFile();
    ReplacedFile(const ReplacedFile&) = delete;
    ReplacedFile& operator=(const ReplacedFile&) = delete;

    void write(std::span<const std::byte> bytes);
    // Writes the bytes to the disk, then renames the file.
    void commit();

  private:
    std::string file_;
    std::string beside_; // empty once renamed
    int descriptor_ = -1;
};

// Writes the whole file at once. Throws std::runtime_error naming `file`.
void replace_file(const std::string& file, std::string_view text);

} // namespace entrodraft::launch
