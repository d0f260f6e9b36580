#include "entrodraft/model/safetensors.h"

#include "entrodraft/model/bad_file.h"
#include "entrodraft/model/json_file.h"
#include "entrodraft/model/safetensors_header.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace entrodraft::model {
namespace {

constexpr std::size_t kMaxIndexBytes = 64u << 20;
constexpr std::size_t kLengthBytes = 8; // of the header's length, before the header

// In the order of the format's source.
constexpr std::pair<std::string_view, std::size_t> kBitsOfType[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

DiskType disk_type(const std::string& dtype) {
    if (dtype == "F32") return DiskType::float32;
    if (dtype == "F16") return DiskType::float16;
    if (dtype == "BF16") return DiskType::bfloat16;
    return DiskType::other;
}

std::string system_reason() {
    return std::system_category().message(errno);
}

// File names of the shards by tensor, as the index has them; the names are plain.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index) {
    const nlohmann::json json = read_json_file(index, kMaxIndexBytes);
    const auto weight_map = json.is_object() ? json.find("weight_map") : json.end();
    if (weight_map == json.end() || !weight_map->is_object()) {
        throw BadFile(index.string() + ": 'weight_map' is missing or not an object");
    }
    std::map<std::string, std::string> shard_of;
    for (const auto& [tensor, value] : weight_map->items()) {
        if (!value.is_string()) throw BadFile(index.string() + ": the file of " + in_quotes(tensor) + " is no string");
        const auto& shard = value.get_ref<const std::string&>();
        const bool is_plain = !shard.empty() && shard != "." && shard != ".." && shard.find('/') == std::string::npos &&
                              shard.find('\0') == std::string::npos;
        if (!is_plain) {
            throw BadFile(index.string() + ": the file of " + in_quotes(tensor) + " is " + in_quotes(shard) +
                          "; it must be the plain name of a file beside the index");
        }
        shard_of.emplace(tensor, shard);
    }
    if (shard_of.empty()) throw BadFile(index.string() + ": 'weight_map' is empty");
    return shard_of;
}

} // namespace

std::size_t element_bits(const std::string& safetensors_dtype) {
    for (const auto& [name, bits] : kBitsOfType) {
        if (name == safetensors_dtype) return bits;
    }
    throw BadFile("unknown dtype " + in_quotes(safetensors_dtype));
}

// A file mapped for reading, for as long as the object lives.
struct Checkpoint::Mapping {
    explicit Mapping(const std::filesystem::path& path) : file(path.string()) {
        // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
        const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (descriptor < 0) throw BadFile(file + ": cannot be opened: " + system_reason());
        const struct Closer {
            int descriptor;
            ~Closer() { ::close(descriptor); }
        } closer{descriptor};
        struct stat about {};
        if (::fstat(descriptor, &about) != 0) throw BadFile(file + ": " + system_reason());
        if (!S_ISREG(about.st_mode)) throw BadFile(file + ": not a regular file");
        size = static_cast<std::size_t>(about.st_size);
        if (size < kLengthBytes) {
            throw BadFile(file + ": " + std::to_string(size) + " bytes are too few for a safetensors file");
        }
        data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (data == MAP_FAILED) throw BadFile(file + ": cannot be mapped: " + system_reason());
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() { ::munmap(data, size); }

    std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data), size}; }

    // Little-endian, whatever this machine is. Throws BadFile where the file cannot hold such a header.
    std::size_t header_length() const {
        std::uint64_t length = 0;
        for (std::size_t i = kLengthBytes; i-- > 0;)
            length = length << 8 | std::to_integer<std::uint64_t>(bytes()[i]);
        if (length > kMaxSafetensorsHeaderBytes) {
            throw BadFile(file + ": a header of " + std::to_string(length) + " bytes is over the format's limit of " +
                          std::to_string(kMaxSafetensorsHeaderBytes) + "; is it a safetensors file?");
        }
        if (length > size - kLengthBytes) {
            throw BadFile(file + ": the header of " + std::to_string(length) + " bytes goes beyond the file's " +
                          std::to_string(size) + "; it is cut short: download it again");
        }
        return static_cast<std::size_t>(length);
    }

    std::string file;
    void* data = nullptr;
    std::size_t size = 0;
};

void Checkpoint::add(const std::filesystem::path& file) {
    const auto mapping = std::make_shared<Mapping>(file);
    const std::size_t header_bytes = mapping->header_length();
    const std::string_view header(reinterpret_cast<const char*>(mapping->bytes().data() + kLengthBytes), header_bytes);
    const auto data = mapping->bytes().subspan(kLengthBytes + header_bytes);
    for (HeaderEntry& entry : parse_safetensors_header(header, data.size(), mapping->file)) {
        TensorView view;
        view.name = entry.name;
        view.dtype = std::move(entry.dtype);
        view.type = disk_type(view.dtype);
        view.shape = std::move(entry.shape);
        view.bytes =
            data.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.end - entry.begin));
        view.file = &mapping->file;
        const auto [at, is_new] = tensors_.try_emplace(std::move(entry.name), std::move(view));
        if (!is_new) {
            throw BadFile(mapping->file + ": tensor " + in_quotes(at->first) + " is also in " + *at->second.file);
        }
    }
    total_bytes_ += data.size();
    mappings_.push_back(mapping);
}

Checkpoint Checkpoint::open_file(const std::filesystem::path& file) {
    Checkpoint checkpoint;
    checkpoint.where_ = file;
    checkpoint.add(file);
    return checkpoint;
}

Checkpoint Checkpoint::open(const std::filesystem::path& directory) {
    std::error_code unused; // what cannot be looked at is not there; the messages below say so
    const auto is_there = [&](const char* name) { return std::filesystem::exists(directory / name, unused); };
    if (!std::filesystem::is_directory(directory, unused)) {
        throw BadFile(directory.string() + ": not a directory; name the one that holds config.json");
    }
    Checkpoint checkpoint;
    checkpoint.where_ = directory;
    if (is_there("model.safetensors")) {
        checkpoint.add(directory / "model.safetensors");
        return checkpoint;
    }
    const auto index = directory / "model.safetensors.index.json";
    if (!is_there("model.safetensors.index.json")) {
        const bool has_pickle = is_there("pytorch_model.bin") || is_there("pytorch_model.bin.index.json");
        throw BadFile(directory.string() + ": neither model.safetensors nor model.safetensors.index.json is there" +
                      (has_pickle ? "; pytorch_model.bin is not read: save the model as safetensors" : ""));
    }
    const auto shard_of = read_weight_map(index);
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : shard_of)
        shards.insert(shard);
    for (const std::string& shard : shards) {
        if (!is_there(shard.c_str())) {
            throw BadFile(index.string() + ": names the file " + in_quotes(shard) + ", which is not there");
        }
        checkpoint.add(directory / shard);
    }
    for (const auto& [tensor, shard] : shard_of) {
        const auto at = checkpoint.tensors_.find(tensor);
        const std::string file = (directory / shard).string();
        if (at == checkpoint.tensors_.end() || *at->second.file != file) {
            throw BadFile(file + ": tensor " + in_quotes(tensor) + " is missing, though the index says it is there");
        }
    }
    return checkpoint;
}

bool Checkpoint::has(const std::string& name) const {
    return tensors_.contains(name);
}

const TensorView& Checkpoint::tensor(const std::string& name) const {
    const auto at = tensors_.find(name);
    if (at == tensors_.end()) throw BadFile(where_.string() + ": tensor " + in_quotes(name) + " is missing");
    return at->second;
}

} // namespace entrodraft::model
