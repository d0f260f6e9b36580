// See safetensors.h.
#include "model/files/safetensors.h"

#include "model/files/bad_file.h"
#include "model/files/json_file.h"
#include "model/files/mapped_file.h"
#include "model/files/tensor_view.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <tuple>
#include <utility>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000; // the format's own limit

// The order is that of the format's source.
constexpr std::pair<std::string_view, std::size_t> kBitsOfType[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

[[noreturn]] void refuse_tensor(const std::string& file, const HeaderEntry& entry, const std::string& reason) {
    throw BadFile(file + ": tensor " + in_quotes(entry.name) + ": " + reason);
}

// Takes the header's values one by one as they are parsed. `where_` says to which part the next value belongs.
class HeaderReader final : public nlohmann::json_sax<Json> {
  public:
    explicit HeaderReader(const std::string& file) : file_(file) {}

    std::vector<HeaderEntry> take() { return std::move(entries_); }

    bool null() override {
        if (where_ == Where::metadata_value) return leave_to(Where::root); // some tools write it for "none"
        return other_value("null");
    }
    bool boolean(bool) override { return other_value("true or false"); }
    bool number_integer(std::int64_t) override { return other_value("a negative number"); }
    bool number_float(double, const std::string&) override { return other_value("a number with a point or exponent"); }
    bool binary(Json::binary_t&) override { return other_value("binary"); }
    bool number_unsigned(std::uint64_t value) override {
        if (where_ == Where::shape) {
            if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
                refuse(fmt::format("a dimension of {} does not fit 63 bits", value));
            }
            entry_.shape.push_back(static_cast<std::int64_t>(value));
            return true;
        }
        if (where_ == Where::offsets) {
            if (n_offsets_ == 2) refuse("data_offsets has more than two numbers");
            (n_offsets_++ == 0 ? entry_.begin : entry_.end) = value;
            return true;
        }
        return other_value("a number");
    }
    bool string(std::string& value) override {
        if (where_ == Where::metadata) return true;
        if (where_ != Where::dtype) return other_value("a string");
        entry_.dtype = std::move(value);
        return leave_to(Where::tensor);
    }
    bool start_object(std::size_t) override {
        switch (where_) {
        case Where::top:
            return leave_to(Where::root);
        case Where::metadata_value:
            return leave_to(Where::metadata);
        case Where::tensor_value:
            return leave_to(Where::tensor);
        case Where::unknown:
            ++unknown_depth_;
            return true;
        default:
            return other_value("an object");
        }
    }
    bool end_object() override {
        if (where_ == Where::unknown) return close_unknown();
        if (where_ == Where::tensor) finish_tensor();
        return leave_to(where_ == Where::root ? Where::top : Where::root);
    }
    bool start_array(std::size_t) override {
        if (where_ == Where::shape_value) return leave_to(Where::shape);
        if (where_ == Where::offsets_value) return leave_to(Where::offsets);
        if (where_ != Where::unknown) return other_value("an array");
        ++unknown_depth_;
        return true;
    }
    bool end_array() override {
        if (where_ == Where::unknown) return close_unknown();
        return leave_to(Where::tensor);
    }
    bool key(std::string& value) override {
        if (where_ == Where::root) return begin_tensor(value);
        if (where_ == Where::tensor) return begin_field(value);
        return true; // in the metadata or an unknown field, any value is allowed
    }
    bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }

  private:
    enum class Where {
        top,
        root,           // the object that holds all tensors
        metadata_value, // right after the key __metadata__
        metadata,       // within it
        tensor_value,   // right after a tensor's name
        tensor,         // within its object
        dtype,          // right after the key dtype, and so on
        shape_value,
        shape,
        offsets_value,
        offsets,
        unknown, // within a field that the format does not have; skipped
    };

    [[noreturn]] void refuse(const std::string& reason) const { refuse_tensor(file_, entry_, reason); }
    bool leave_to(Where where) {
        where_ = where;
        return true;
    }
    bool close_unknown() {
        if (--unknown_depth_ == 0) where_ = Where::tensor;
        return true;
    }
    bool begin_tensor(std::string& name) {
        if (name == "__metadata__") {
            if (std::exchange(has_metadata_, true)) throw BadFile(file_ + ": header: two __metadata__");
            return leave_to(Where::metadata_value);
        }
        entry_ = HeaderEntry{};
        entry_.name = std::move(name);
        has_dtype_ = has_shape_ = has_offsets_ = false;
        n_offsets_ = 0;
        if (entry_.name.find('\0') != std::string::npos) refuse("a NUL character in the name");
        return leave_to(Where::tensor_value);
    }
    bool begin_field(const std::string& field) {
        const auto once = [&](bool& seen, Where where) {
            if (std::exchange(seen, true)) refuse("the field '" + field + "' appears twice");
            return leave_to(where);
        };
        if (field == "dtype") return once(has_dtype_, Where::dtype);
        if (field == "shape") return once(has_shape_, Where::shape_value);
        if (field == "data_offsets") return once(has_offsets_, Where::offsets_value);
        return leave_to(Where::unknown);
    }
    void finish_tensor() {
        if (!has_dtype_) refuse("the field 'dtype' is missing");
        if (!has_shape_) refuse("the field 'shape' is missing");
        if (!has_offsets_ || n_offsets_ != 2) refuse("data_offsets must be two numbers");
        entries_.push_back(std::move(entry_));
    }
    // Handles a value of a kind that is not allowed here.
    bool other_value(const char* kind) {
        const std::string found = std::string("found ") + kind;
        switch (where_) {
        case Where::unknown:
            if (unknown_depth_ == 0) where_ = Where::tensor;
            return true;
        case Where::top:
        case Where::root:
            throw BadFile(file_ + ": header: " + found + " where an object of tensors must be");
        case Where::metadata_value:
        case Where::metadata:
            throw BadFile(file_ + ": header: __metadata__ must hold strings, " + found);
        case Where::tensor_value:
        case Where::tensor:
            refuse("must be an object, " + found);
        case Where::dtype:
            refuse("dtype must be a string, " + found);
        case Where::shape_value:
        case Where::shape:
            refuse("shape must be an array of whole numbers from 0, " + found);
        case Where::offsets_value:
        case Where::offsets:
            refuse("data_offsets must be two whole numbers from 0, " + found);
        }
        return false;
    }

    const std::string& file_;
    std::vector<HeaderEntry> entries_;
    Where where_ = Where::top;
    HeaderEntry entry_;
    bool has_dtype_ = false;
    bool has_shape_ = false;
    bool has_offsets_ = false;
    bool has_metadata_ = false;
    int n_offsets_ = 0;
    std::size_t unknown_depth_ = 0;
};

std::size_t bits_of_element(const HeaderEntry& entry, const std::string& file) {
    try {
        return element_bits(entry.dtype);
    } catch (const BadFile& error) {
        refuse_tensor(file, entry, error.what());
    }
}

// Returns the number of bytes by shape and dtype. Products are checked in order, as in the reference: after a zero, any
// later dimension is harmless; a zero after an overflow is not.
std::uint64_t checked_bytes(const HeaderEntry& entry, const std::string& file) {
    std::uint64_t bits = 1;
    bool overflow = false;
    for (const std::int64_t dim : entry.shape) {
        overflow = overflow || __builtin_mul_overflow(bits, static_cast<std::uint64_t>(dim), &bits);
    }
    overflow = overflow || __builtin_mul_overflow(bits, bits_of_element(entry, file), &bits);
    if (overflow) refuse_tensor(file, entry, "the product of its dimensions does not fit 64 bits");
    if (bits % 8 != 0) refuse_tensor(file, entry, fmt::format("{} bits are not a whole number of bytes", bits));
    return bits / 8;
}

void check_size(const HeaderEntry& entry, const std::string& file) {
    const std::uint64_t bytes = checked_bytes(entry, file);
    if (entry.begin > entry.end) refuse_tensor(file, entry, "data_offsets end before they begin");
    if (entry.end - entry.begin != bytes) {
        refuse_tensor(
            file, entry,
            fmt::format("data_offsets span {} bytes, shape and dtype need {}", entry.end - entry.begin, bytes));
    }
}

// `entries` are in the order of their data.
void check_coverage(const std::vector<HeaderEntry>& entries, std::uint64_t data_bytes, const std::string& file) {
    std::uint64_t covered = 0;
    for (const HeaderEntry& entry : entries) {
        if (entry.begin != covered) {
            throw BadFile(
                fmt::format("{}: tensor {} begins at byte {} of the data, {}; the tensors before it end at {}", file,
                            in_quotes(entry.name), entry.begin,
                            entry.begin < covered ? "within another tensor" : "behind a hole", covered));
        }
        covered = entry.end;
    }
    if (covered != data_bytes) {
        throw BadFile(
            fmt::format("{}: the tensors need {} bytes of data, the file holds {}{}", file, covered, data_bytes,
                        covered > data_bytes ? "; it is cut short: download it again" : ": bytes of no tensor"));
    }
}

constexpr std::size_t kLengthBytes = 8; // of the header's length, before the header

constexpr std::uint64_t kZipMark = 0x04034b50; // the first four bytes of a zip archive

// Reads it little-endian on any machine. Throws BadFile where the file cannot hold such a header.
std::size_t header_length(const MappedFile& file) {
    const auto bytes = file.bytes();
    std::uint64_t length = 0;
    for (std::size_t i = kLengthBytes; i-- > 0;)
        length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
    if (length > bytes.size() - kLengthBytes && (length & 0xffffffff) == kZipMark) {
        throw BadFile(file.name() + ": a zip archive, as torch.save writes it, under a name of safetensors; rename it "
                                    "pytorch_model.bin");
    }
    if (length > kMaxHeaderBytes) {
        throw BadFile(
            fmt::format("{}: a header of {} bytes is over the format's limit of {}; is it a safetensors file?",
                        file.name(), length, kMaxHeaderBytes));
    }
    if (length > bytes.size() - kLengthBytes) {
        throw BadFile(
            fmt::format("{}: the header of {} bytes goes beyond the file's {}; it is cut short: download it again",
                        file.name(), length, bytes.size()));
    }
    return static_cast<std::size_t>(length);
}

} // namespace

DiskType disk_type(std::string_view dtype) {
    if (dtype == "F32") return DiskType::float32;
    if (dtype == "F16") return DiskType::float16;
    if (dtype == "BF16") return DiskType::bfloat16;
    return DiskType::other;
}

std::size_t element_bits(std::string_view dtype) {
    for (const auto& [name, bits] : kBitsOfType) {
        if (name == dtype) return bits;
    }
    throw BadFile("unknown dtype " + in_quotes(dtype));
}

std::vector<HeaderEntry> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                  const std::string& file) {
    HeaderReader reader(file);
    scan_json(json, file + ": header", reader);
    std::vector<HeaderEntry> entries = reader.take();
    std::ranges::sort(entries, {}, &HeaderEntry::name);
    const auto twice = std::ranges::adjacent_find(entries, {}, &HeaderEntry::name);
    if (twice != entries.end()) refuse_tensor(file, *twice, "the name appears twice in the header");
    for (const HeaderEntry& entry : entries)
        check_size(entry, file);
    std::ranges::sort(entries, [](const HeaderEntry& a, const HeaderEntry& b) {
        return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    check_coverage(entries, data_bytes, file);
    return entries;
}

TensorFile open_safetensors(const std::filesystem::path& path) {
    TensorFile file;
    file.mapping = std::make_shared<const MappedFile>(path, kLengthBytes, "safetensors");
    const auto bytes = file.mapping->bytes();
    const std::size_t header_bytes = header_length(*file.mapping);
    const std::string_view header = file.mapping->text().substr(kLengthBytes, header_bytes);
    const auto data = bytes.subspan(kLengthBytes + header_bytes);
    for (HeaderEntry& entry : parse_safetensors_header(header, data.size(), file.mapping->name())) {
        TensorView view;
        view.name = std::move(entry.name);
        view.dtype = std::move(entry.dtype);
        view.type = disk_type(view.dtype);
        view.shape = std::move(entry.shape);
        view.bytes =
            data.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.end - entry.begin));
        view.file = &file.mapping->name();
        file.tensors.push_back(std::move(view));
    }
    file.data_bytes = data.size();
    return file;
}

std::string safetensors_beginning(std::span<const TensorBytes> tensors) {
    nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}}; // transformers requires it
    std::uint64_t end = 0;
    for (const TensorBytes& tensor : tensors) {
        const std::uint64_t begin = std::exchange(end, end + tensor.bytes.size());
        header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' '); // so that data begin aligned
    const std::uint64_t size = text.size();
    std::string beginning(sizeof size, '\0');
    for (std::size_t i = 0; i < sizeof size; ++i)
        beginning[i] = static_cast<char>(size >> (8 * i) & 255);
    return beginning + text;
}

} // namespace entrodraft::model
