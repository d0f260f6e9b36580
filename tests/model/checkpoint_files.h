// Makes the bytes of small checkpoint files, good or wrong on purpose: safetensors, zip archives and the pickles within
// them. Knows nothing of the readers. Called by the tests of checkpoint, safetensors and torch_file.
#pragma once

#include "model/files/bad_file.h"
#include "tests/model/cpu_seconds.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace entrodraft::model {

// The message of the BadFile that `action` throws; empty where it throws none.
inline std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const BadFile& error) {
        return error.what();
    }
    return "";
}

inline std::string little_endian(std::uint64_t value, int n) {
    std::string bytes;
    for (int i = 0; i < n; ++i)
        bytes += static_cast<char>(value >> (8 * i) & 255);
    return bytes;
}

inline std::string counting_bytes(std::size_t n) {
    std::string bytes;
    for (std::size_t i = 0; i < n; ++i)
        bytes += static_cast<char>(i & 255);
    return bytes;
}

// Length, header, then `data_bytes` bytes 0, 1, 2, ...
inline std::string safetensors_of(const std::string& header, std::size_t data_bytes) {
    return little_endian(header.size(), 8) + header + counting_bytes(data_bytes);
}

// An entry of such a header.
inline std::string header_entry(const std::string& name, const std::string& dtype, const std::string& shape,
                                std::uint64_t begin, std::uint64_t end) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
}

struct FileInZip {
    std::string name;
    std::string bytes;
};

// A zip archive of stored entries: its parts, so that a test may spoil one. `is_64` writes the fields of zip64.
struct ZipParts {
    std::string local; // headers and data
    std::string directory;
    std::string end_64; // record and locator, or nothing
    std::string end;

    std::string bytes() const { return local + directory + end_64 + end; }
};

inline ZipParts zip_parts(const std::vector<FileInZip>& files, bool is_64 = false, std::size_t padding = 0) {
    const auto in_32_bits = [&](std::uint64_t value) { return little_endian(is_64 ? 0xffffffff : value, 4); };
    ZipParts parts;
    for (const FileInZip& file : files) {
        const std::string name_bytes = little_endian(file.name.size(), 2), offset = in_32_bits(parts.local.size());
        const std::string sizes = in_32_bits(file.bytes.size()) + in_32_bits(file.bytes.size());
        const std::string fields_64 = little_endian(file.bytes.size(), 8) + little_endian(file.bytes.size(), 8) +
                                      little_endian(parts.local.size(), 8);
        // Some other tool's extra field first, then zip64's.
        const std::string extra = is_64 ? "XX" + little_endian(2, 2) + "ab" + little_endian(1, 2) +
                                              little_endian(fields_64.size(), 2) + fields_64
                                        : "";
        parts.local += "PK\3\4" + std::string(14, '\0') + sizes + name_bytes + little_endian(padding, 2) + file.name +
                       std::string(padding, 'Z') + file.bytes;
        parts.directory += "PK\1\2" + std::string(16, '\0') + sizes + name_bytes + little_endian(extra.size(), 2) +
                           std::string(10, '\0') + offset + file.name + extra;
    }
    const std::string n_64 = little_endian(files.size(), 8);
    const std::string extent_64 = little_endian(parts.directory.size(), 8) + little_endian(parts.local.size(), 8);
    if (is_64) {
        parts.end_64 = "PK\6\6" + little_endian(44, 8) + std::string(12, '\0') + n_64 + n_64 + extent_64 + "PK\6\7" +
                       std::string(4, '\0') + little_endian(parts.local.size() + parts.directory.size(), 8) +
                       little_endian(1, 4);
    }
    const std::string n = little_endian(is_64 ? 0xffff : files.size(), 2);
    parts.end = "PK\5\6" + std::string(4, '\0') + n + n + in_32_bits(parts.directory.size()) +
                in_32_bits(parts.local.size()) + std::string(2, '\0');
    return parts;
}

// Opcodes of protocol 2.
namespace pickled {

inline std::string text(const std::string& value) {
    return "X" + little_endian(value.size(), 4) + value;
}
inline std::string number(std::int64_t value) {
    return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(value), 8);
}
inline std::string name(const std::string& module, const std::string& member) {
    return "c" + module + "\n" + member + "\n";
}
inline std::string numbers(const std::vector<std::int64_t>& values) {
    std::string items = "(";
    for (const std::int64_t value : values)
        items += number(value);
    return items + "t";
}
inline std::string ordered_dict() {
    return name("collections", "OrderedDict") + ")R";
}
inline std::string storage(const std::string& type, const std::string& key, std::int64_t n_elements) {
    return "(" + text("storage") + name("torch", type) + text(key) + text("cpu") + number(n_elements) + "tQ";
}
inline std::string tensor(const std::string& of, std::int64_t offset, const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides) {
    return name("torch._utils", "_rebuild_tensor_v2") + "(" + of + number(offset) + numbers(shape) + numbers(strides) +
           "\x89" + ordered_dict() + "tR";
}
inline std::string dict(const std::string& keys_and_values) {
    return "}(" + keys_and_values + "u";
}
inline std::string whole(const std::string& opcodes) {
    return "\x80\x02" + opcodes + ".";
}

} // namespace pickled

} // namespace entrodraft::model
