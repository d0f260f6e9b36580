// Blocks, packed and unpacked: see recording_block.h and docs/formats.md.
#include "spec/replay/recording_block.h"

#include "model/files/json_file.h"

#include <algorithm>
#include <zlib.h>

#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

static_assert(std::endian::native == std::endian::little, "files of recordings are little-endian");

using Json = nlohmann::json;

constexpr std::string_view kMagic = "EDR1";
constexpr std::size_t kHeadBytes = 12;                  // magic, length, checksum
constexpr std::size_t kMaxBytes = std::size_t{1} << 30; // of a block, unpacked
constexpr std::size_t kValueBytes = 4;

void put(std::string& to, std::uint32_t value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
    std::uint32_t value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

std::uint32_t checksum(std::string_view bytes) {
    return static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

std::string compressed(const std::string& bytes) {
    uLongf size = compressBound(static_cast<uLong>(bytes.size()));
    std::string packed(size, '\0');
    const int status =
        compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
                  static_cast<uLong>(bytes.size()), Z_DEFAULT_COMPRESSION);
    if (status != Z_OK) throw std::runtime_error(fmt::format("zlib cannot compress a block: status {}", status));
    packed.resize(size);
    return packed;
}

std::string inflated(std::string_view packed) {
    z_stream stream = {};
    if (inflateInit(&stream) != Z_OK) throw std::runtime_error("zlib cannot begin");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    std::string bytes;
    int status = Z_OK;
    while (status == Z_OK && bytes.size() < kMaxBytes) {
        constexpr std::size_t kStep = std::size_t{1} << 18;
        const std::size_t before = bytes.size();
        bytes.resize(before + kStep);
        stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + before);
        stream.avail_out = kStep;
        status = inflate(&stream, Z_NO_FLUSH);
        bytes.resize(before + kStep - stream.avail_out);
    }
    const bool has_more = stream.avail_in > 0;
    inflateEnd(&stream);
    if (status != Z_STREAM_END || has_more) throw std::runtime_error("its compressed bytes are damaged or too many");
    return bytes;
}

std::size_t count_of(const Json& column) {
    const auto found = column.find("count");
    const bool is_count = found != column.end() && found->is_number_unsigned();
    if (!is_count || found->get<std::uint64_t>() > kMaxBytes) throw std::runtime_error("a column has no count");
    return found->get<std::size_t>();
}

} // namespace

// Adds the bytes of the values plane by plane: first all first bytes, then all second bytes, and so on.
template <typename T> void BlockWriter::add(const std::string& name, const char* type, const std::vector<T>& values) {
    static_assert(sizeof(T) == kValueBytes);
    json["columns"].push_back({{"name", name}, {"type", type}, {"count", values.size()}});
    const char* const bytes = reinterpret_cast<const char*>(values.data());
    for (std::size_t plane = 0; plane < kValueBytes; ++plane)
        for (std::size_t i = 0; i < values.size(); ++i)
            columns_ += bytes[i * kValueBytes + plane];
}

std::string BlockWriter::finish() {
    const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() + columns_.size() > kMaxBytes) throw std::runtime_error("a text is too long to be recorded");
    std::string unpacked;
    put(unpacked, static_cast<std::uint32_t>(text.size()));
    unpacked += text;
    unpacked += columns_;
    const std::string packed = compressed(unpacked);
    std::string block(kMagic);
    put(block, static_cast<std::uint32_t>(packed.size()));
    put(block, checksum(packed));
    return block + packed;
}

BlockReader::BlockReader(std::string_view bytes, std::size_t& length) {
    length = 0;
    if (bytes.substr(0, kMagic.size()) != kMagic.substr(0, bytes.size()))
        throw std::runtime_error("it does not begin as a block of a recording does");
    if (bytes.size() < kHeadBytes) return;
    const std::size_t size = number_at(bytes, 4);
    if (bytes.size() - kHeadBytes < size) return;
    const std::string_view packed = bytes.substr(kHeadBytes, size);
    if (checksum(packed) != number_at(bytes, 8)) throw std::runtime_error("its checksum is another");
    unpacked_ = inflated(packed);
    const std::size_t text = unpacked_.size() < 4 ? unpacked_.size() : number_at(unpacked_, 0);
    if (unpacked_.size() < 4 || text > unpacked_.size() - 4) throw std::runtime_error("its JSON is cut off");
    json = model::parse_json(std::string_view(unpacked_).substr(4, text), "its JSON");
    if (!json.is_object()) throw std::runtime_error("its JSON is not an object");
    columns_at_ = 4 + text;
    check_columns(unpacked_.size() - columns_at_);
    length = kHeadBytes + size;
}

void BlockReader::check_columns(std::size_t bytes) {
    std::size_t sum = 0;
    if (json.contains("columns")) {
        if (!json["columns"].is_array()) throw std::runtime_error("its columns are not a list");
        for (const Json& column : json["columns"]) {
            if (!column.is_object() || !column.contains("name") || !column["name"].is_string() ||
                !column.contains("type") || (column["type"] != "i32" && column["type"] != "f32"))
                throw std::runtime_error("a column has no name or no known type");
            sum += count_of(column) * kValueBytes;
            if (sum > bytes) break;
        }
    }
    if (sum != bytes) throw std::runtime_error("its columns hold another number of bytes than they say");
}

bool BlockReader::has(const std::string& name) const {
    const auto columns = json.find("columns");
    return columns != json.end() &&
           std::ranges::any_of(*columns, [&](const Json& column) { return column["name"] == name; });
}

template <typename T> void BlockReader::read(const std::string& name, const char* type, std::vector<T>& values) const {
    std::size_t at = columns_at_;
    const auto columns = json.find("columns");
    for (std::size_t c = 0; columns != json.end() && c < columns->size(); ++c) {
        const Json& column = (*columns)[c];
        const std::size_t count = count_of(column);
        if (column["name"] != name || column["type"] != type) {
            at += count * kValueBytes;
            continue;
        }
        values.resize(count);
        char* const bytes = reinterpret_cast<char*>(values.data());
        for (std::size_t plane = 0; plane < kValueBytes; ++plane)
            for (std::size_t i = 0; i < count; ++i)
                bytes[i * kValueBytes + plane] = unpacked_[at + plane * count + i];
        return;
    }
    throw std::runtime_error("column " + name + " of type " + type + " is missing");
}

template void BlockWriter::add(const std::string&, const char*, const std::vector<std::int32_t>&);
template void BlockWriter::add(const std::string&, const char*, const std::vector<float>&);
template void BlockReader::read(const std::string&, const char*, std::vector<std::int32_t>&) const;
template void BlockReader::read(const std::string&, const char*, std::vector<float>&) const;

bool holds_block(std::string_view bytes) {
    for (std::size_t at = bytes.find(kMagic); at != std::string_view::npos; at = bytes.find(kMagic, at + 1)) {
        try {
            std::size_t length = 0;
            const BlockReader block(bytes.substr(at), length);
            if (length > 0) return true;
        } catch (const std::runtime_error&) { // not a block
        }
    }
    return false;
}

} // namespace entrodraft::spec
