// See checkpoint.h.
#include "entrodraft/model/checkpoint.h"

#include "entrodraft/model/bad_file.h"
#include "entrodraft/model/json_file.h"
#include "entrodraft/model/mapped_file.h"
#include "entrodraft/model/safetensors.h"

#include <set>
#include <system_error>
#include <utility>

namespace entrodraft::model {
namespace {

constexpr std::size_t kMaxIndexBytes = 64u << 20;

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

bool is_there(const std::filesystem::path& path) {
    std::error_code unused; // what cannot be looked at is not there; the messages say so
    return std::filesystem::exists(path, unused);
}

} // namespace

void Checkpoint::add(const std::filesystem::path& path) {
    TensorFile file = open_safetensors(path);
    for (TensorView& view : file.tensors) {
        const auto [at, is_new] = tensors_.try_emplace(view.name, std::move(view));
        if (!is_new) {
            throw BadFile(path.string() + ": tensor " + in_quotes(at->first) + " is also in " + *at->second.file);
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
        if (!is_there(directory / shard)) {
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
    std::error_code unused;
    if (!std::filesystem::is_directory(directory, unused)) {
        throw BadFile(directory.string() + ": not a directory; name the one that holds config.json");
    }
    Checkpoint checkpoint;
    checkpoint.where_ = directory;
    const auto index = directory / "model.safetensors.index.json";
    if (is_there(directory / "model.safetensors")) {
        checkpoint.add(directory / "model.safetensors");
    } else if (is_there(index)) {
        checkpoint.add_shards(directory, index);
    } else {
        const bool has_pickle =
            is_there(directory / "pytorch_model.bin") || is_there(directory / "pytorch_model.bin.index.json");
        throw BadFile(directory.string() + ": neither model.safetensors nor model.safetensors.index.json is there" +
                      (has_pickle ? "; pytorch_model.bin is not read: save the model as safetensors" : ""));
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
