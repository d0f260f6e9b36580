#include "model/checkpoint/gguf_model.h"

#include "model/checkpoint/bad_file.h"
#include "model/checkpoint/gguf_blocks.h"
#include "model/checkpoint/mapped_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <set>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;

constexpr const char* kRopeFactors = "rope_freqs.weight";

struct Architecture {
    const char* name;       // general.architecture
    const char* class_name; // of transformers, whose model_type has the same name
    bool pairs_neighbours = false, norms_are_whole = false;
};
constexpr std::array<Architecture, 4> kArchitectures = {{{"llama", "LlamaForCausalLM", true, false},
                                                         {"qwen2", "Qwen2ForCausalLM"},
                                                         {"qwen3", "Qwen3ForCausalLM"},
                                                         {"gemma", "GemmaForCausalLM", false, true}}};

class Metadata {
  public:
    explicit Metadata(const GgufFile& file) : values_(file.metadata), file_(file.tensors.mapping->name()) {
        const Json* name = find("general.architecture");
        const auto at =
            name == nullptr
                ? kArchitectures.end()
                : std::ranges::find_if(kArchitectures, [&](const Architecture& each) { return *name == each.name; });
        if (at == kArchitectures.end())
            refuse(fmt::format("general.architecture is {}; supported: llama, qwen2, qwen3, gemma",
                               name ? name->dump(-1, ' ', true, Json::error_handler_t::replace) : "missing"));
        architecture_ = &*at;
    }

    [[noreturn]] void refuse(const std::string& reason) const { throw BadFile(file_ + ": " + reason); }
    const Architecture& architecture() const { return *architecture_; }
    const Json* find(const std::string& key) const {
        const auto at = values_.find(key);
        return at == values_.end() ? nullptr : &*at;
    }
    // Of the architecture.
    const Json* field(const char* key) const { return find(fmt::format("{}.{}", architecture_->name, key)); }
    const Json& required(const char* key) const {
        const Json* value = field(key);
        if (value == nullptr) refuse(fmt::format("'{}.{}' is missing", architecture_->name, key));
        return *value;
    }

  private:
    const Json& values_;
    std::string file_;
    const Architecture* architecture_ = nullptr;
};

const TensorView* find_tensor(const GgufFile& file, std::string_view name) {
    const auto at = std::ranges::find(file.tensors.tensors, name, &TensorView::name);
    return at == file.tensors.tensors.end() ? nullptr : &*at;
}

void add_ends(const Metadata& metadata, Json& config) {
    const Json* bos = metadata.find("tokenizer.ggml.bos_token_id");
    config["bos_token_id"] = bos ? *bos : Json();
    Json ends = Json::array();
    for (const char* name : {"eos", "eot"})
        if (const Json* id = metadata.find(fmt::format("tokenizer.ggml.{}_token_id", name));
            id && std::ranges::find(ends, *id) == ends.end())
            ends.push_back(*id);
    config["eos_token_id"] = ends.empty() ? Json() : ends;
}

} // namespace

Json gguf_config(const GgufFile& file) {
    const Metadata metadata(file);
    const TensorView* embedding = find_tensor(file, "token_embd.weight");
    if (!embedding || embedding->shape.size() != 2) metadata.refuse("tensor 'token_embd.weight' is missing");
    const auto refuse_field = [&](const char* key, const Json& neutral) {
        const Json* value = metadata.field(key);
        if (value && *value != neutral)
            metadata.refuse(fmt::format("'{}.{}' is {}, which is not supported", metadata.architecture().name, key,
                                        value->dump(-1, ' ', true, Json::error_handler_t::replace)));
    };
    refuse_field("expert_count", 0);
    refuse_field("attention.sliding_window", 0);
    refuse_field("rope.scaling.type", "none");
    Json config = {{"model_type", metadata.architecture().name},
                   {"architectures", {metadata.architecture().class_name}},
                   {"vocab_size", static_cast<std::uint64_t>(embedding->shape[0])},
                   {"hidden_size", metadata.required("embedding_length")},
                   {"intermediate_size", metadata.required("feed_forward_length")},
                   {"num_hidden_layers", metadata.required("block_count")},
                   {"num_attention_heads", metadata.required("attention.head_count")},
                   {"max_position_embeddings", metadata.required("context_length")},
                   {"rms_norm_eps", metadata.required("attention.layer_norm_rms_epsilon")},
                   {"tie_word_embeddings", find_tensor(file, "output.weight") == nullptr}};
    const auto copy = [&](const char* from, const char* to) {
        if (const Json* value = metadata.field(from)) config[to] = *value;
    };
    copy("attention.head_count_kv", "num_key_value_heads");
    copy("attention.key_length", "head_dim");
    if (const Json* values = metadata.field("attention.value_length"); values && config["head_dim"] != *values)
        metadata.refuse("keys and values of different lengths are not supported");
    copy("rope.freq_base", "rope_theta");
    if (const Json* dims = metadata.field("rope.dimension_count"); dims && config.contains("head_dim"))
        refuse_field("rope.dimension_count", config["head_dim"]);
    if (metadata.architecture().name == std::string_view("llama"))
        config["attention_bias"] = find_tensor(file, "blk.0.attn_q.bias") != nullptr;
    const TensorView* first = find_tensor(file, "blk.0.attn_q.weight");
    const DiskType type = first ? first->type : embedding->type;
    config["dtype"] = type == DiskType::float16 ? "float16" : type == DiskType::bfloat16 ? "bfloat16" : "float32";
    add_ends(metadata, config);
    return config;
}

GgufDifferences gguf_differences(const GgufFile& file) {
    const Architecture& architecture = Metadata(file).architecture();
    GgufDifferences found = {architecture.pairs_neighbours, architecture.norms_are_whole, {}, 0};
    if (const TensorView* factors = find_tensor(file, kRopeFactors); factors && factors->type == DiskType::float32) {
        found.pair_factors.resize(factors->bytes.size() / sizeof(float));
        std::memcpy(found.pair_factors.data(), factors->bytes.data(), factors->bytes.size());
    }
    double bits = 0, elements = 0;
    bool is_quantised = false;
    std::map<std::string, std::set<std::string>> joint; // types of queries, keys and values, by layer
    const auto is_joint = [](const std::string& name) {
        return name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight") || name.ends_with(".attn_v.weight");
    };
    const auto layer_of = [](const std::string& name) { return name.substr(0, name.find(".attn")); };
    for (const TensorView& tensor : file.tensors.tensors)
        if (is_joint(tensor.name)) joint[layer_of(tensor.name)].insert(tensor.dtype);
    for (const TensorView& tensor : file.tensors.tensors) {
        if (tensor.shape.size() != 2) continue;
        const double n = static_cast<double>(tensor.shape[0]) * static_cast<double>(tensor.shape[1]);
        elements += n;
        if (!tensor.quantized) {
            bits += n * 32; // at most, of whatever type in memory
            continue;
        }
        const Quantization& of = tensor.quantized->of; // scales and zeros in float32
        constexpr double kMixed = 8 + 2 * 32.0 / 16;   // joint_format()'s, at most
        const bool is_mixed = is_joint(tensor.name) && joint[layer_of(tensor.name)].size() > 1;
        bits += n * (is_mixed ? kMixed : of.bits + 32.0 * (of.has_zeros ? 2 : 1) / of.group);
        is_quantised = true;
    }
    if (is_quantised) found.memory_bits = bits / elements;
    return found;
}

TensorFile gguf_tensors(GgufFile file) {
    static const std::map<std::string_view, std::string_view> outer = {
        {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
    static const std::map<std::string_view, std::string_view> of_layer = {
        {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
        {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
        {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
        {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
        {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
        {"ffn_down", "mlp.down_proj"}};
    std::erase_if(file.tensors.tensors, [](const TensorView& tensor) { return tensor.name == kRopeFactors; });
    for (TensorView& tensor : file.tensors.tensors) {
        const std::string_view name = tensor.name;
        const std::size_t dot = std::min(name.rfind('.'), name.size());
        std::string_view stem = name.substr(0, dot);
        std::string prefix;
        const auto* names = &outer;
        if (stem.starts_with("blk.")) {
            const std::size_t end = std::min(stem.find('.', 4), stem.size());
            prefix = "model.layers" + std::string(stem.substr(3, end - 3)) + ".";
            stem.remove_prefix(std::min(end + 1, stem.size()));
            names = &of_layer;
        }
        const auto at = names->find(stem);
        if (at == names->end())
            throw BadFile(fmt::format("{}: tensor {} has no place in a model of its architecture", *tensor.file,
                                      in_quotes(tensor.name)));
        std::string renamed = prefix + std::string(at->second) + std::string(name.substr(dot));
        tensor.name = std::move(renamed);
    }
    return std::move(file.tensors);
}

} // namespace entrodraft::model
