// Reads the entries of a zip archive in the form that torch.save writes: stored without compression, with zip64 fields
// for large entries. It reads the directory at the end and checks every field against the file. It unpacks nothing,
// copies nothing, and ignores checksums. Any other kind of zip (compressed, encrypted, in parts, with a comment) is
// refused. Called by torch_file.
#pragma once

#include "model/files/mapped_file.h"

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace entrodraft::model {

constexpr std::size_t kShortestZip = 22; // bytes

struct ZipEntry {
    std::string_view name; // points into the mapping, as do the bytes
    std::span<const std::byte> bytes;
};

// Returns all entries in the order of their names, which are distinct. Entries do not share bytes. Throws BadFile.
std::vector<ZipEntry> read_zip(const MappedFile& file);

// Returns the entry of this name, or null.
const ZipEntry* find_entry(const std::vector<ZipEntry>& entries, std::string_view name);

} // namespace entrodraft::model
