// See zip_archive.h. Field offsets are those of PKWARE's APPNOTE 6.3.10, sections 4.3.7 to 4.3.16 and 4.5.3.
#include "model/files/zip_archive.h"

#include "model/files/bad_file.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <string>

namespace entrodraft::model {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::uint64_t kLocalMark = 0x04034b50, kEntryMark = 0x02014b50, kEndMark = 0x06054b50;
constexpr std::uint64_t kEnd64Mark = 0x06064b50, kLocator64Mark = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr std::uint64_t kIn64Bits = 0xffffffff; // in a 32-bit field it means: see the zip64 field
constexpr std::uint64_t kManyEntries = 0xffff;  // the same for the count
constexpr std::uint64_t kMaxEntries = 1'000'000;
constexpr std::uint64_t kEncrypted = 1u | 1u << 6 | 1u << 13; // flags

// Returns the little-endian number of n <= 8 bytes at `offset`, which must be inside.
std::uint64_t number_at(Bytes bytes, std::size_t offset, std::size_t n) {
    std::uint64_t value = 0;
    for (std::size_t i = n; i-- > 0;)
        value = value << 8 | std::to_integer<std::uint64_t>(bytes[offset + i]);
    return value;
}

// The place of the directory; it ends at the file's first end record.
struct Directory {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t n_entries = 0;
};

// An entry of the directory, with its zip64 fields filled in.
struct DirectoryEntry {
    std::string_view name;
    std::uint64_t method = 0;
    std::uint64_t bytes = 0;
    std::uint64_t local_offset = 0; // of the local header
    std::uint64_t end = 0;          // of the data
    Bytes data;
};

class ZipReader {
  public:
    explicit ZipReader(const MappedFile& file) : file_(file), bytes_(file.bytes()) {}

    std::vector<ZipEntry> read() {
        directory_ = find_directory();
        std::vector<DirectoryEntry> entries = read_directory();
        for (DirectoryEntry& entry : entries)
            locate(entry);
        check_conflicts(entries);
        std::vector<ZipEntry> found;
        found.reserve(entries.size());
        for (const DirectoryEntry& entry : entries)
            found.push_back({entry.name, entry.data});
        std::ranges::sort(found, {}, &ZipEntry::name);
        const auto twice = std::ranges::adjacent_find(found, {}, &ZipEntry::name);
        if (twice != found.end()) refuse("the entry " + in_quotes(twice->name) + " appears twice");
        return found;
    }

  private:
    [[noreturn]] void refuse(const std::string& reason) const { throw BadFile(file_.name() + ": zip: " + reason); }
    [[noreturn]] void refuse(const DirectoryEntry& entry, const std::string& reason) const {
        refuse("entry " + in_quotes(entry.name) + ": " + reason);
    }
    bool has_mark(std::size_t offset, std::uint64_t mark) const { return number_at(bytes_, offset, 4) == mark; }

    Directory find_directory() const {
        if (bytes_.size() < kEndBytes || !has_mark(bytes_.size() - kEndBytes, kEndMark)) {
            refuse("no directory at the end; the file is cut short: download it again");
        }
        const std::size_t end = bytes_.size() - kEndBytes;
        const bool is_64 = end >= kLocator64Bytes && has_mark(end - kLocator64Bytes, kLocator64Mark);
        const Bytes record = bytes_.subspan(end);
        Directory directory{number_at(record, 16, 4), number_at(record, 12, 4), number_at(record, 10, 2)};
        const bool is_whole = number_at(record, 4, 4) == 0 && number_at(record, 8, 2) == directory.n_entries;
        std::size_t first_record = end;
        if (is_64) {
            first_record = end - kLocator64Bytes - std::min(end - kLocator64Bytes, kEnd64Bytes);
            directory = find_directory_64(first_record, directory);
        } else if (directory.offset == kIn64Bits || directory.bytes == kIn64Bits ||
                   directory.n_entries == kManyEntries) {
            refuse("the end record of its 64-bit directory is missing");
        }
        if (!is_whole) refuse("the archive is one part of several");
        if (directory.bytes > first_record || directory.offset != first_record - directory.bytes) {
            refuse("the directory is not where the end record says");
        }
        if (directory.n_entries > kMaxEntries) {
            refuse(fmt::format("{} entries are more than {}", directory.n_entries, kMaxEntries));
        }
        return directory;
    }

    // The zip64 end record lies right before its locator, at `offset`. It must agree with the old record.
    Directory find_directory_64(std::size_t offset, const Directory& old) const {
        const Bytes record = bytes_.subspan(offset);
        const Bytes locator = bytes_.subspan(bytes_.size() - kEndBytes - kLocator64Bytes);
        if (record.size() < kEnd64Bytes + kLocator64Bytes + kEndBytes || number_at(record, 0, 4) != kEnd64Mark ||
            number_at(locator, 8, 8) != offset || number_at(record, 4, 8) != kEnd64Bytes - 12) {
            refuse("the end record of its 64-bit directory is not where it must be");
        }
        const Directory directory{number_at(record, 48, 8), number_at(record, 40, 8), number_at(record, 32, 8)};
        const auto agrees = [](std::uint64_t short_field, std::uint64_t field, std::uint64_t stand_in) {
            return short_field == field || short_field == stand_in;
        };
        if (number_at(locator, 4, 4) != 0 || number_at(locator, 16, 4) > 1 || number_at(record, 16, 8) != 0 ||
            number_at(record, 24, 8) != directory.n_entries) {
            refuse("the archive is one part of several");
        }
        if (!agrees(old.offset, directory.offset, kIn64Bits) || !agrees(old.bytes, directory.bytes, kIn64Bits) ||
            !agrees(old.n_entries, directory.n_entries, kManyEntries)) {
            refuse("its two end records differ");
        }
        return directory;
    }

    std::vector<DirectoryEntry> read_directory() const {
        Bytes rest =
            bytes_.subspan(static_cast<std::size_t>(directory_.offset), static_cast<std::size_t>(directory_.bytes));
        if (directory_.n_entries > rest.size() / kEntryBytes) refuse("the directory is too short for its entries");
        std::vector<DirectoryEntry> entries;
        entries.reserve(static_cast<std::size_t>(directory_.n_entries));
        while (entries.size() < directory_.n_entries)
            entries.push_back(take_entry(rest));
        if (!rest.empty()) refuse("the directory is longer than its entries");
        return entries;
    }

    // Takes the directory's next entry from `rest`.
    DirectoryEntry take_entry(Bytes& rest) const {
        if (rest.size() < kEntryBytes || number_at(rest, 0, 4) != kEntryMark) refuse("a broken entry in the directory");
        const auto name_bytes = static_cast<std::size_t>(number_at(rest, 28, 2));
        const auto extra_bytes = static_cast<std::size_t>(number_at(rest, 30, 2));
        const std::size_t size = kEntryBytes + name_bytes + extra_bytes + number_at(rest, 32, 2);
        if (size > rest.size()) refuse("a broken entry in the directory");
        DirectoryEntry entry;
        entry.name = {reinterpret_cast<const char*>(rest.data() + kEntryBytes), name_bytes};
        entry.method = number_at(rest, 10, 2);
        entry.bytes = number_at(rest, 24, 4);
        entry.local_offset = number_at(rest, 42, 4);
        std::uint64_t packed_bytes = number_at(rest, 20, 4);
        take_64_bit_fields(entry, packed_bytes, rest.subspan(kEntryBytes + name_bytes, extra_bytes));
        if ((number_at(rest, 8, 2) & kEncrypted) != 0) refuse(entry, "is encrypted");
        if (entry.method != 0) {
            refuse(entry,
                   fmt::format(
                       "is compressed (method {}), and torch.save stores entries as they are; save the model again",
                       entry.method));
        }
        if (packed_bytes != entry.bytes) refuse(entry, "is stored, yet its two sizes differ");
        if (number_at(rest, 34, 2) != 0) refuse("the archive is one part of several");
        rest = rest.subspan(size);
        return entry;
    }

    // Fields that do not fit 32 bits are in the extra field 1, in this order.
    void take_64_bit_fields(DirectoryEntry& entry, std::uint64_t& packed_bytes, Bytes extra) const {
        std::uint64_t* const fields[] = {&entry.bytes, &packed_bytes, &entry.local_offset};
        if (std::none_of(std::begin(fields), std::end(fields), [](auto* field) { return *field == kIn64Bits; })) return;
        while (extra.size() >= 4 && number_at(extra, 0, 2) != 1)
            extra = extra.subspan(std::min<std::size_t>(extra.size(), 4 + number_at(extra, 2, 2)));
        if (extra.size() < 4 || number_at(extra, 2, 2) > extra.size() - 4)
            refuse(entry, "its 64-bit sizes are missing");
        extra = extra.subspan(4, static_cast<std::size_t>(number_at(extra, 2, 2)));
        for (std::uint64_t* const field : fields) {
            if (*field != kIn64Bits) continue;
            if (extra.size() < 8) refuse(entry, "its 64-bit sizes are missing");
            *field = number_at(extra, 0, 8);
            extra = extra.subspan(8);
        }
    }

    // Finds the data after the local header, whose padding the directory does not know.
    void locate(DirectoryEntry& entry) const {
        const Bytes before = bytes_.first(static_cast<std::size_t>(directory_.offset));
        if (entry.local_offset > before.size() || before.size() - entry.local_offset < kLocalBytes) {
            refuse(entry, "begins outside the file");
        }
        const Bytes local = before.subspan(static_cast<std::size_t>(entry.local_offset));
        const auto name_bytes = static_cast<std::size_t>(number_at(local, 26, 2));
        const std::size_t header_bytes = kLocalBytes + name_bytes + static_cast<std::size_t>(number_at(local, 28, 2));
        if (header_bytes > local.size() || entry.bytes > local.size() - header_bytes) {
            refuse(entry, "ends outside the file");
        }
        const std::string_view name(reinterpret_cast<const char*>(local.data() + kLocalBytes), name_bytes);
        if (number_at(local, 0, 4) != kLocalMark || name != entry.name || number_at(local, 8, 2) != entry.method ||
            (number_at(local, 6, 2) & kEncrypted) != 0) {
            refuse(entry, "the header before its data is not as the directory says");
        }
        entry.data = local.subspan(header_bytes, static_cast<std::size_t>(entry.bytes));
        entry.end = entry.local_offset + header_bytes + entry.bytes;
    }

    void check_conflicts(std::vector<DirectoryEntry>& entries) const {
        std::ranges::sort(entries, {}, &DirectoryEntry::local_offset);
        for (std::size_t i = 1; i < entries.size(); ++i) {
            if (entries[i].local_offset < entries[i - 1].end) {
                refuse(entries[i], "lies within the entry " + in_quotes(entries[i - 1].name));
            }
        }
    }

    const MappedFile& file_;
    Bytes bytes_;
    Directory directory_;
};

} // namespace

std::vector<ZipEntry> read_zip(const MappedFile& file) {
    return ZipReader(file).read();
}

const ZipEntry* find_entry(const std::vector<ZipEntry>& entries, std::string_view name) {
    const auto at = std::ranges::lower_bound(entries, name, {}, &ZipEntry::name);
    return at != entries.end() && at->name == name ? &*at : nullptr;
}

} // namespace entrodraft::model
