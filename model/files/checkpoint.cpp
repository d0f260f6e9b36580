// See checkpoint.h.
#include "model/files/checkpoint.h"

#include "model/files/bad_file.h"
#include "model/files/gguf_model.h"
#include "model/files/json_file.h"
#include "model/files/mapped_file.h"
#include "model/files/quantized.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

namespace entrodraft::model {
namespace {

constexpr std::size_t kMaxIndexBytes = 64u << 20;

// Returns the shards' file names by tensor, as the index has them. They are plain names.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index) {
    const nlohmann::json list = read_json_file(index, kMaxIndexBytes);
    const auto weight_map = list.is_object() ? list.find("weight_map") : list.end();
    if (weight_map == list.end() || !weight_map->is_object()) {
        throw BadFile(index.string() + ": 'weight_map' is missing or not an object");
    }
    std::map<std::string, std::string> shard_of;
    for (const auto& [tensor, value] : weight_map->items()) {
        if (!value.is_string())
            throw BadFile(index.string() + ": the file of " + in_quotes(tensor) + " is not a string");
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

bool is_by_torch(const std::filesystem::path& file) {
    const auto ending = file.extension();
    return ending == ".bin" || ending == ".pt" || ending == ".pth";
}

// For a message: names the files of weights in the directory that are not read. Empty where there are none.
std::string other_weights(const std::filesystem::path& directory) {
    constexpr std::array<std::string_view, 7> kEndings = {".safetensors", ".bin", ".pt",     ".pth",
                                                          ".gguf",        ".h5",  ".msgpack"};
    constexpr std::size_t kShown = 3;
    std::set<std::string> names;
    std::error_code unused; // a directory that cannot be listed shows none
    for (const auto& entry : std::filesystem::directory_iterator(directory, unused)) {
        const auto ending = entry.path().extension().string();
        if (std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end())
            names.insert(entry.path().filename().string());
        if (names.size() > kShown) names.erase(std::prev(names.end()));
    }
    std::string text;
    for (const std::string& name : names)
        text += (text.empty() ? "; not read under such a name: " : ", ") + in_quotes(name);
    return text;
}

} // namespace

void Checkpoint::add(const std::filesystem::path& path) {
    if (path.extension() == ".gguf") {
        for (TensorFile& part : gguf_tensors(open_gguf(path)))
            add(std::move(part));
        return;
    }
    add(is_by_torch(path) ? open_torch_file(path) : open_safetensors(path));
}

void Checkpoint::add(TensorFile file) {
    for (TensorView& view : file.tensors) {
        const auto [at, is_new] = tensors_.try_emplace(view.name, std::move(view));
        if (!is_new) {
            throw BadFile(file.mapping->name() + ": tensor " + in_quotes(at->first) + " is also in " +
                          *at->second.file);
        }
    }
    total_bytes_ += file.data_bytes; // mapped all at once, so the sum fits
    mappings_.push_back(std::move(file.mapping));
}

void Checkpoint::add_shards(const std::filesystem::path& directory, const std::filesystem::path& index) {
    const auto shard_of = read_weight_map(index);
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : shard_of)
        shards.insert(shard);
    for (const std::string& shard : shards) {
        if (!file_exists(directory / shard)) {
            throw BadFile(index.string() + ": names the file " + in_quotes(shard) + ", which is not there");
        }
        add(directory / shard);
    }
    for (const auto& [tensor, shard] : shard_of) {
        const auto at = tensors_.find(tensor);
        const std::string file = (directory / shard).string();
        if (at == tensors_.end() || *at->second.file != file) {
            throw BadFile(file + ": tensor " + in_quotes(tensor) + " is missing, though the index says it is there");
        }
    }
}

Checkpoint Checkpoint::open_file(const std::filesystem::path& file) {
    Checkpoint checkpoint;
    checkpoint.where_ = file;
    checkpoint.add(file);
    return checkpoint;
}

Checkpoint Checkpoint::open(const std::filesystem::path& directory) {
    Checkpoint checkpoint;
    checkpoint.where_ = directory;
    if (const auto file = gguf_file_of(directory)) {
        checkpoint.add(*file);
        return checkpoint;
    }
    std::error_code unused;
    if (!std::filesystem::is_directory(directory, unused)) {
        throw BadFile(directory.string() + ": not a directory; name the one that holds config.json");
    }
    checkpoint.add_directory(directory);
    const auto config = directory / "config.json";
    if (!file_exists(config)) return checkpoint;
    if (const auto quantization = read_quantization(read_object(config), config.string()))
        join_quantized(*quantization, checkpoint.tensors_);
    return checkpoint;
}

void Checkpoint::add_directory(const std::filesystem::path& directory) {
    for (const char* single : {"model.safetensors", "pytorch_model.bin"}) {
        const auto file = directory / single;
        const auto index = directory / (std::string(single) + ".index.json");
        if (file_exists(file)) return add(file);
        if (file_exists(index)) return add_shards(directory, index);
    }
    throw BadFile(directory.string() + ": neither model.safetensors nor pytorch_model.bin nor an index of either is " +
                  "there" + other_weights(directory));
}

Checkpoint Checkpoint::composed(std::filesystem::path where, const std::vector<Part>& parts) {
    Checkpoint checkpoint;
    checkpoint.where_ = std::move(where);
    std::set<const Checkpoint*> sources;
    for (const Part& part : parts) {
        const TensorView& tensor = part.from->tensor(part.stored_name);
        checkpoint.tensors_.emplace(part.name, tensor);
        checkpoint.total_bytes_ += tensor.bytes.size();
        if (sources.insert(part.from).second)
            checkpoint.mappings_.insert(checkpoint.mappings_.end(), part.from->mappings_.begin(),
                                        part.from->mappings_.end());
    }
    return checkpoint;
}

Checkpoint Checkpoint::generated(std::vector<TensorView> tensors, std::size_t element_bytes) {
    static const std::string no_file = "random weights";
    Checkpoint checkpoint;
    checkpoint.where_ = no_file;
    for (TensorView& tensor : tensors) {
        std::uint64_t bytes = element_bytes;
        for (const std::int64_t dim : tensor.shape)
            bytes *= static_cast<std::uint64_t>(dim);
        checkpoint.total_bytes_ += bytes;
        tensor.file = &no_file;
        checkpoint.tensors_.emplace(tensor.name, tensor);
    }
    return checkpoint;
}

std::vector<FileIdentity> Checkpoint::files() const {
    std::vector<FileIdentity> identities;
    for (const auto& mapping : mappings_)
        identities.push_back(mapping->identity());
    return identities;
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
