#include "model/files/gguf_file.h"

#include "model/files/bad_file.h"
#include "model/files/gguf_blocks.h"
#include "model/files/json_file.h"
#include "model/files/mapped_file.h"
#include "model/files/utf8.h"

#include <cstring>
#include <fmt/format.h>
#include <regex>
#include <set>
#include <string_view>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;

// Kinds of values, by their numbers in files.
enum class ValueKind : std::uint32_t {
    uint8,
    int8,
    uint16,
    int16,
    uint32,
    int32,
    float32,
    boolean,
    string,
    array,
    uint64,
    int64,
    float64
};

class GgufHeaderReader {
  public:
    explicit GgufHeaderReader(const MappedFile& file) : file_(file), bytes_(file.bytes()) {}

    struct Header {
        Json metadata;
        TensorFile tensors;
    };
    // The place of a tensor's bytes after the header. Without a size, its type is not known.
    struct Place {
        std::uint64_t offset = 0;
        std::optional<std::uint64_t> bytes;
    };
    Header read() {
        Header out;
        if (file_.text().substr(0, 4) != "GGUF") refuse("does not begin with GGUF");
        at_ = 4;
        const auto version = number<std::uint32_t>();
        if (version != 2 && version != 3) refuse(fmt::format("is of version {}; supported: 2, 3", version));
        const std::uint64_t n_tensors = count(kMinTensorBytes, "tensors");
        const std::uint64_t n_values = count(kMinValueBytes, "values");
        out.metadata = Json::object();
        for (std::uint64_t i = 0; i < n_values; ++i) {
            std::string key = string();
            const std::string what = in_quotes(key);
            Json read = value(static_cast<ValueKind>(number<std::uint32_t>()), what, true);
            if (!out.metadata.emplace(std::move(key), std::move(read)).second) refuse(what + " is there twice");
        }
        read_tensors(n_tensors, alignment_of(out.metadata), out.tensors);
        return out;
    }

  private:
    static constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 4 + 8, kMinValueBytes = 8 + 4 + 1;
    static constexpr std::uint64_t kMaxElements = 16'000'000; // in all arrays together
    static constexpr std::uint32_t kMaxDims = 4;

    [[noreturn]] void refuse(const std::string& reason) const { throw BadFile(file_.name() + ": " + reason); }

    std::uint64_t left() const { return bytes_.size() - at_; }
    const std::byte* take(std::uint64_t n) {
        if (n > left()) refuse(fmt::format("ends at byte {} within its header", bytes_.size()));
        const std::byte* from = bytes_.data() + at_;
        at_ += n;
        return from;
    }
    template <typename T> T number() {
        T value;
        std::memcpy(&value, take(sizeof value), sizeof value);
        return value;
    }
    // Reads a number of things, each of which takes at least `least_bytes`.
    std::uint64_t count(std::uint64_t least_bytes, const char* what) {
        const auto n = number<std::uint64_t>();
        if (n > left() / least_bytes) refuse(fmt::format("cannot hold {} {}", n, what));
        return n;
    }
    std::string string() {
        const std::uint64_t n = count(1, "bytes of a string");
        std::string text(reinterpret_cast<const char*>(take(n)), static_cast<std::size_t>(n));
        if (first_invalid_utf8(text) != std::string_view::npos)
            refuse(fmt::format("holds a string that is not UTF-8, before byte {}", at_));
        return text;
    }
    // Readers ask for numbers without a sign.
    static Json whole(std::int64_t value) { return value < 0 ? Json(value) : Json(static_cast<std::uint64_t>(value)); }
    Json value(ValueKind kind, const std::string& what, bool may_be_array) {
        switch (kind) {
        case ValueKind::uint8:
            return number<std::uint8_t>();
        case ValueKind::int8:
            return whole(number<std::int8_t>());
        case ValueKind::uint16:
            return number<std::uint16_t>();
        case ValueKind::int16:
            return whole(number<std::int16_t>());
        case ValueKind::uint32:
            return number<std::uint32_t>();
        case ValueKind::int32:
            return whole(number<std::int32_t>());
        case ValueKind::float32:
            return number<float>();
        case ValueKind::boolean:
            return number<std::uint8_t>() != 0;
        case ValueKind::string:
            return string();
        case ValueKind::uint64:
            return number<std::uint64_t>();
        case ValueKind::int64:
            return whole(number<std::int64_t>());
        case ValueKind::float64:
            return number<double>();
        case ValueKind::array:
            if (may_be_array) return array(what);
            refuse(what + " is a list of lists");
        }
        refuse(fmt::format("{} is of kind {}, which is not known", what, static_cast<std::uint32_t>(kind)));
    }
    Json array(const std::string& what) {
        const auto kind = static_cast<ValueKind>(number<std::uint32_t>());
        const std::uint64_t n = count(1, "elements of a list");
        if (n > kMaxElements - n_elements_) refuse(fmt::format("has more than {} elements in lists", kMaxElements));
        n_elements_ += n;
        Json list = Json::array();
        for (std::uint64_t i = 0; i < n; ++i)
            list.push_back(value(kind, what, false));
        return list;
    }
    std::uint64_t alignment_of(const Json& metadata) const {
        const auto at = metadata.find("general.alignment");
        if (at == metadata.end()) return 32;
        const std::uint64_t alignment = at->is_number_unsigned() ? at->get<std::uint64_t>() : 0;
        if (alignment == 0 || alignment > 65536 || (alignment & (alignment - 1)) != 0)
            refuse("'general.alignment' is not a power of two up to 65536");
        return alignment;
    }

    void read_tensors(std::uint64_t n, std::uint64_t alignment, TensorFile& out) {
        std::set<std::string> names;
        std::vector<Place> places;
        for (std::uint64_t i = 0; i < n; ++i) {
            TensorView tensor;
            places.push_back(read_tensor(tensor));
            if (!names.insert(tensor.name).second) refuse(in_words(tensor) + " is there twice");
            out.tensors.push_back(std::move(tensor));
        }
        const std::uint64_t begin = padded(at_, alignment);
        const std::uint64_t data = begin <= bytes_.size() ? bytes_.size() - begin : 0;
        std::optional<std::uint64_t> expected = 0;
        for (std::size_t i = 0; i < out.tensors.size(); ++i) {
            TensorView& tensor = out.tensors[i];
            const auto [offset, size] = places[i];
            if (expected && offset != *expected)
                refuse(fmt::format("{} begins at byte {} of the tensors, where {} follows on the one before it; the "
                                   "file is damaged: get it again",
                                   in_words(tensor), offset, *expected));
            if (offset > data || size.value_or(0) > data - offset)
                refuse(in_words(tensor) + " lies beyond the end of the file");
            expected = size ? std::optional(padded(offset + *size, alignment)) : std::nullopt;
            tensor.bytes = bytes_.subspan(begin + offset, size.value_or(0));
            out.data_bytes += size.value_or(0);
            if (!tensor.quantized) continue;
            QuantizedMatrix matrix = *tensor.quantized;
            matrix.codes.bytes = tensor.bytes;
            tensor.quantized = std::make_shared<const QuantizedMatrix>(std::move(matrix));
        }
    }
    static std::uint64_t padded(std::uint64_t size, std::uint64_t alignment) {
        return (size + alignment - 1) / alignment * alignment;
    }
    static std::string in_words(const TensorView& tensor) { return "tensor " + in_quotes(tensor.name); }

    Place read_tensor(TensorView& tensor) {
        tensor.name = string();
        tensor.file = &file_.name();
        const auto n_dims = number<std::uint32_t>();
        if (n_dims > kMaxDims) refuse(fmt::format("{} has {} dimensions", in_words(tensor), n_dims));
        constexpr std::uint64_t kMax = std::uint64_t{1} << 40; // elements
        std::uint64_t elements = 1;
        for (std::uint32_t dim = 0; dim < n_dims; ++dim) {
            const auto size = number<std::uint64_t>();
            if (size == 0 || size > kMax / elements)
                refuse(in_words(tensor) + " has a dimension of 0, or is too large");
            elements *= size;
            tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
        }
        const auto of = number<std::uint32_t>();
        const auto offset = number<std::uint64_t>();
        const BlockType* type = block_type(of);
        tensor.dtype = type ? type->name : "number";
        tensor.type = disk_type(tensor.dtype);
        if (tensor.type == DiskType::other && !(type && type->codes)) tensor.dtype += fmt::format(" {}", of);
        if (!type || type->bytes == 0) return {offset, std::nullopt};
        const auto inputs = static_cast<std::uint64_t>(type->inputs);
        if ((n_dims == 0 ? 1 : static_cast<std::uint64_t>(tensor.shape.back())) % inputs != 0)
            refuse(fmt::format("{} is of type {}, but its rows are not whole blocks of {}", in_words(tensor),
                               tensor.dtype, inputs));
        if (type->codes) show_as_matrix(*type, static_cast<std::int64_t>(elements), tensor);
        return {offset, elements / inputs * static_cast<std::uint64_t>(type->bytes)};
    }
    void show_as_matrix(const BlockType& type, std::int64_t elements, TensorView& tensor) const {
        if (tensor.shape.size() != 2 && tensor.shape.size() != 3) // or a matrix for each expert
            refuse(fmt::format("{} is of type {}, but not a matrix", in_words(tensor), tensor.dtype));
        tensor.type = DiskType::quantized;
        QuantizedMatrix matrix;
        matrix.of = {.form = QuantizedForm::blocks,
                     .bits = type.bits,
                     .group = type.group,
                     .has_zeros = type.has_offsets(),
                     .values = type.values,
                     .block = &type};
        matrix.inputs = tensor.shape.back();
        matrix.outputs = elements / matrix.inputs;
        matrix.codes = tensor;
        tensor.quantized = std::make_shared<const QuantizedMatrix>(std::move(matrix));
    }

    const MappedFile& file_;
    std::span<const std::byte> bytes_;
    std::uint64_t at_ = 0, n_elements_ = 0;
};

constexpr std::string_view kEnding = ".gguf";

// NAME, I and N of NAME-0000I-of-0000N.gguf.
struct PartName {
    std::string stem;
    int number = 1, count = 1;

    std::string of(int part) const { return fmt::format("{}-{:05}-of-{:05}{}", stem, part, count, kEnding); }
};
std::optional<PartName> part_name(const std::string& file) {
    static const std::regex form("(.*)-([0-9]{5})-of-([0-9]{5})\\.gguf");
    std::smatch parts;
    if (!std::regex_match(file, parts, form)) return std::nullopt;
    const PartName name = {parts[1], std::stoi(parts[2]), std::stoi(parts[3])};
    return name.number >= 1 && name.number <= name.count ? std::optional(name) : std::nullopt;
}

GgufHeaderReader::Header read_header(const std::filesystem::path& path) {
    auto mapping = std::make_shared<const MappedFile>(path, 24, "GGUF");
    GgufHeaderReader::Header header = GgufHeaderReader(*mapping).read();
    header.tensors.mapping = std::move(mapping);
    return header;
}

// Returns number and count of a part, as its metadata has them.
std::pair<std::int64_t, std::int64_t> place_of_part(const Json& metadata) {
    const auto number = [&](const char* key, std::int64_t default_value) {
        const auto at = metadata.find(key);
        return at != metadata.end() && at->is_number_integer() ? at->get<std::int64_t>() : default_value;
    };
    return {number("split.no", 0) + 1, number("split.count", 1)};
}

} // namespace

std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& file) {
    const auto name = part_name(file.filename().string());
    if (!name) return {file};
    std::vector<std::filesystem::path> parts;
    for (int part = 1; part <= name->count; ++part)
        parts.push_back(file.parent_path() / name->of(part));
    return parts;
}

namespace {

// Returns true for the image part of a model, such as mmproj-model-f16.gguf, a file next to the model's own.
bool is_projector(const std::filesystem::path& file) {
    return file.filename().string().starts_with("mmproj");
}

} // namespace

std::optional<std::filesystem::path> gguf_file_of(const std::filesystem::path& path) {
    std::error_code unused; // a path that cannot be examined is not such a file
    if (path.extension() == kEnding && std::filesystem::is_regular_file(path, unused)) return path;
    if (!std::filesystem::is_directory(path, unused) || file_exists(path / "config.json")) return std::nullopt;
    std::optional<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(path, unused)) {
        if (entry.path().extension() != kEnding || is_projector(entry.path())) continue;
        const std::filesystem::path first = gguf_parts(entry.path()).front();
        if (found && *found != first) throw BadFile(path.string() + ": holds several files of GGUF; name one");
        found = first;
    }
    return found;
}

GgufFile open_gguf(const std::filesystem::path& path) {
    GgufHeaderReader::Header first = read_header(path);
    GgufFile file = {path.string(), std::move(first.metadata), {}};
    const auto refuse = [&](const std::string& reason) { throw BadFile(file.name + ": " + reason); };
    const auto [number, count] = place_of_part(file.metadata);
    file.parts.push_back(std::move(first.tensors));
    if (count == 1) return file;
    const auto name = part_name(path.filename().string());
    if (number != 1) refuse(fmt::format("is part {} of {}; name the first", number, count));
    if (!name || name->number != 1 || name->count != count)
        refuse(fmt::format("is the first of {} parts, but not named NAME-00001-of-{:05}.gguf", count, count));
    std::size_t n_tensors = file.parts.front().tensors.size();
    for (int part = 2; part <= name->count; ++part) {
        GgufHeaderReader::Header next = read_header(path.parent_path() / name->of(part));
        if (place_of_part(next.metadata) != std::pair<std::int64_t, std::int64_t>(part, count))
            throw BadFile(
                fmt::format("{}: is not part {} of {}, as its name says", next.tensors.mapping->name(), part, count));
        n_tensors += next.tensors.tensors.size();
        file.parts.push_back(std::move(next.tensors));
    }
    const Json said = file.metadata.value("split.tensors.count", Json());
    if (said != n_tensors)
        refuse(fmt::format("'split.tensors.count' is {}, but the {} parts have {} tensors; they are not of one model, "
                           "or not whole: get them again",
                           said.dump(), count, n_tensors));
    return file;
}

} // namespace entrodraft::model
