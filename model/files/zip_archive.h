// The entries of a zip archive as torch.save writes it: stored as they are, with zip64 fields for large ones. Reads
// the directory at the end and holds every field against the file; unpacks nothing, copies nothing, and ignores
// checksums. Anything else a zip may be (compressed, encrypted, in parts, with a comment) is refused.
// Called by torch_file.
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

// All entries by the order of their names, which are distinct; no two share a byte. Throws BadFile.
std::vector<ZipEntry> read_zip(const MappedFile& file);

// The entry of this name, or null.
const ZipEntry* find_entry(const std::vector<ZipEntry>& entries, std::string_view name);

} // namespace entrodraft::model
