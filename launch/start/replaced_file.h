// A file that takes another's place only once it is whole: written beside it, then renamed.
//
// For results that are worth nothing by half. A link stays a link: the file that it leads to is replaced, and the new
// file has the mode of the old one. Called by build-table, generate, simulate, tune and the benches.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace entrodraft::launch {

// Throws std::runtime_error naming `file` where it is clear beforehand that it cannot be replaced: it exists and is not
// a regular file, or its directory is missing or not writable.
void require_replaceable(const std::string& file);

// Whether two names are one file, which need not be there yet.
bool are_one_file(const std::string& a, const std::string& b);

class ReplacedFile {
  public:
    // Opens a new file beside `file`. Throws std::runtime_error naming it, as the other calls do.
    explicit ReplacedFile(const std::string& file);
    // Without commit() nothing is left, and `file` is as it was.
    ~ReplacedFile();
    ReplacedFile(const ReplacedFile&) = delete;
    ReplacedFile& operator=(const ReplacedFile&) = delete;

    void write(std::span<const std::byte> bytes);
    // On the disk, and then under its name.
    void commit();

  private:
    std::string file_;
    std::string beside_; // empty once renamed
    int descriptor_ = -1;
};

// All of it at once. Throws std::runtime_error naming `file`.
void replace_file(const std::string& file, std::string_view text);

} // namespace entrodraft::launch
