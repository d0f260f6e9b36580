// Finds the format, and has the parts that formats share: see head.h.
#include "model/heads/head.h"

#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "model/weights/tensor_shapes.h"

#include <cstdint>
#include <cstring>
#include <fmt/format.h>

namespace entrodraft::model {
namespace {

// The names that authors publish.
constexpr const char* kWeightFiles[] = {"medusa_lm_head.safetensors", "medusa_lm_head.pt", "hydra_lm_head.pt"};

HeadFiles open_head(const std::filesystem::path& directory) {
    const std::filesystem::path config = directory / "config.json";
    nlohmann::json json = decoder_fields(read_object(config), config.string());
    for (const char* name : kWeightFiles)
        if (file_exists(directory / name)) return {directory, std::move(json), Checkpoint::open_file(directory / name)};
    return {directory, std::move(json), Checkpoint::open(directory)};
}

// Returns the target's name, which authors' layouts and speculators' have at different places.
std::string target_name(const HeadFiles& files) {
    const nlohmann::json* at = &files.json;
    for (const char* key : {"speculators_config", "verifier", "name_or_path"}) {
        if (!at->is_object() || !at->contains(key)) return files.text("base_model_name_or_path");
        at = &(*at)[key];
    }
    return at->is_string() ? at->get<std::string>() : "";
}

int target_vocab_size(const HeadFiles& files) {
    const auto inner = files.json.find("transformer_layer_config");
    const nlohmann::json& of = inner != files.json.end() && inner->is_object() ? *inner : files.json;
    const auto found = of.find("vocab_size");
    return found != of.end() && found->is_number_unsigned() ? found->get<int>() : 0;
}

} // namespace

std::string HeadFiles::text(const char* field) const {
    const auto found = json.find(field);
    return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

DraftHead read_head(const std::filesystem::path& directory, const ModelConfig& target, const Checkpoint& weights) {
    const HeadFiles files = open_head(directory);
    if (target.residual_scale != 1)
        throw BadFile(files.file() + ": draft heads of " + target.family + " targets are not supported");
    std::string names;
    for (const HeadFormat& format : heads_of_files()) {
        names += (names.empty() ? "" : ", ") + format.name;
        if (!format.is_of(files)) continue;
        DraftHead head = format.read(files, {target, weights, names_of(target, weights)});
        head.format = format.name;
        head.trained_for = target_name(files);
        head.trained_vocab_size = target_vocab_size(files);
        for (const HeadModule& module : head.modules)
            check_shapes(module.config, module.weights);
        return head;
    }
    throw BadFile(files.file() + ": not a draft head of a known format (" + names + ")");
}

// ---- tensors ----

void HeadTensors::add(const std::string& name, const std::string& stored) {
    if (!has(stored)) throw BadFile(files_.directory.string() + ": tensor " + in_quotes(stored) + " is missing");
    parts_.push_back({name, &files_.weights, stored});
}

void HeadTensors::add_of_target(const std::string& name, const std::string& stored) {
    parts_.push_back({name, &target_.weights, stored});
}

void HeadTensors::add_layer(int number, const std::string& stored, const std::string& part) {
    for (const auto& [name, tensor] : files_.weights.tensors())
        if (name.starts_with(stored + part) && !name.ends_with("rotary_emb.inv_freq"))
            add(fmt::format("model.layers.{}.{}", number, name.substr(stored.size())), name);
}

void HeadTensors::add_embedding(const std::string& stored) {
    has(stored) ? add("model.embed_tokens.weight", stored)
                : add_of_target("model.embed_tokens.weight", target_.names.embedding.weight);
}

void HeadTensors::add_output(const std::string& stored) {
    has(stored) ? add("lm_head.weight", stored) : add_of_target("lm_head.weight", target_.names.head.weight);
}

void HeadTensors::norm_features_as_target(ModelConfig& config) {
    const TensorNames& norm = target_.names.final_norm;
    FusionConfig& fusion = config.fusion;
    fusion.n_feature_norms = norm.weight.empty() ? 0 : 1;
    if (norm.weight.empty()) return;
    fusion.feature_norm_size = target_.config.hidden_size;
    fusion.feature_norm = target_.config.norm;
    fusion.feature_norm_epsilon = target_.config.norm_epsilon;
    fusion.feature_norm_offset = target_.config.norm_offset;
    add_of_target("model.feature_norm.0.weight", norm.weight);
    if (!norm.bias.empty()) add_of_target("model.feature_norm.0.bias", norm.bias);
}

void HeadTensors::norm_features(ModelConfig& config, int count, int size, const std::string& stored) {
    FusionConfig& fusion = config.fusion;
    fusion.n_feature_norms = count;
    fusion.feature_norm_size = size;
    fusion.feature_norm_epsilon = config.norm_epsilon;
    for (int i = 0; i < count; ++i)
        add(fmt::format("model.feature_norm.{}.weight", i),
            (count == 1 ? stored : fmt::format("{}.{}", stored, i)) + ".weight");
}

void HeadTensors::add_both(const std::string& name, const std::string& stored) {
    add(name + ".weight", stored + ".weight");
    if (has(stored + ".bias")) add(name + ".bias", stored + ".bias");
}

// ---- configs ----

ModelConfig head_layers_config(nlohmann::json json, const HeadFiles& files, const HeadTarget& target) {
    if (!json.is_object()) throw BadFile(files.file() + ": 'transformer_layer_config' must be an object");
    if (!json.contains("model_type")) json["model_type"] = "llama";
    json.erase("architectures");                                               // the head's own
    json["vocab_size"] = static_cast<std::uint64_t>(target.config.vocab_size); // as if the file said so
    json["max_position_embeddings"] = static_cast<std::uint64_t>(target.config.max_positions);
    json["tie_word_embeddings"] = false;
    if (!json.contains("num_hidden_layers")) json["num_hidden_layers"] = 1U;
    ModelConfig config = read_config(json, files.file());
    config.fusion.feature_size = target.config.hidden_size;
    return config;
}

ModelConfig head_without_layers(const HeadTarget& target) {
    ModelConfig config;
    config.vocab_size = target.config.vocab_size;
    config.hidden_size = config.embedding_size = target.config.hidden_size;
    config.max_positions = target.config.max_positions;
    config.n_heads = config.n_kv_heads = 1;
    config.head_dim = config.rope.dims = 2; // there are 0 layers
    config.fusion.kind = Fusion::features;
    config.fusion.feature_size = target.config.hidden_size;
    config.final_norm = false;
    config.stored_type = target.config.stored_type;
    return config;
}

HeadModule module_of_last_state(const HeadFiles& files, const HeadTarget& target,
                                const std::function<void(ModelConfig& config, HeadTensors& tensors)>& add) {
    ModelConfig config = head_without_layers(target);
    HeadTensors tensors(files, target);
    tensors.norm_features_as_target(config);
    add(config, tensors);
    return {config, tensors.composed()};
}

std::vector<TokenId> read_tokens(const HeadFiles& files, const HeadTarget& target, const char* name, bool are_offsets) {
    if (!files.weights.has(name)) return {};
    const TensorView& list = files.weights.tensor(name);
    if (list.dtype != "I64" || list.shape.size() != 1)
        throw BadFile(fmt::format("{}: tensor '{}' must be a list of I64", *list.file, name));
    std::vector<TokenId> tokens;
    for (std::int64_t i = 0; i < list.shape[0]; ++i) {
        std::int64_t value;
        std::memcpy(&value, &list.bytes[static_cast<std::size_t>(i) * sizeof value], sizeof value);
        const std::int64_t from = are_offsets ? i : 0;
        if (value < -from || value >= target.config.vocab_size - from)
            throw BadFile(fmt::format("{}: '{}' makes the head's token {} the target's {}, of {} tokens", *list.file,
                                      name, i, static_cast<double>(from) + static_cast<double>(value),
                                      target.config.vocab_size));
        tokens.push_back(static_cast<TokenId>(from + value));
    }
    return tokens;
}

std::vector<int> layer_ids(const Fields& fields, const char* name, int offset, const HeadTarget& target) {
    const nlohmann::json& ids = fields.required(name);
    if (!ids.is_array() || ids.empty() || ids.size() > 16)
        fields.refuse(fmt::format("'{}' must be a list of layers", name));
    std::vector<int> layers;
    for (const nlohmann::json& id : ids) {
        const int layer = id.is_number_integer() ? id.get<int>() + offset : -1;
        if (layer < offset || layer > target.config.n_layers)
            fields.refuse(
                fmt::format("the head reads the target after {} layers; it has {}", layer, target.config.n_layers));
        layers.push_back(layer);
    }
    return layers;
}

TokenId mask_token(const Fields& fields, const ModelConfig& config) {
    const int token = fields.count("mask_token_id", 0);
    if (token >= config.vocab_size) fields.refuse("'mask_token_id' is outside the vocabulary");
    return static_cast<TokenId>(token);
}

void require_target_size(const Fields& fields, const char* name, const HeadTarget& target) {
    const int trained_for = fields.size(name, target.config.hidden_size);
    if (trained_for != target.config.hidden_size)
        fields.refuse(fmt::format("'{}' is {}, and the target's hidden size {}: this head is of another target", name,
                                  trained_for, target.config.hidden_size));
}

} // namespace entrodraft::model
