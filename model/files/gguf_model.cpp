#include "model/files/gguf_model.h"

#include "model/files/bad_file.h"
#include "model/files/gguf_architectures.h"
#include "model/files/gguf_blocks.h"
#include "model/files/gguf_ends.h"
#include "model/files/quantized.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <set>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;
using Names = GgufArchitecture::Names;

constexpr std::uint64_t kManyLayers = 100'000; // more than any model has
constexpr std::string_view kRopeFactors = "rope_freqs.weight";

std::string_view find_name(const Names& names, std::string_view key) {
    const auto at = std::ranges::find(names, key, &Names::value_type::first);
    return at == names.end() ? std::string_view() : at->second;
}

// Refuses keys that change the arithmetic, except at their neutral values. Fields of the architecture are known.
void refuse_unsupported(const GgufMetadata& metadata) {
    static const std::vector<std::pair<std::string_view, Json>> neutral_values = {{"attention.sliding_window", 0},
                                                                                  {"attn_logit_softcapping", 0},
                                                                                  {"final_logit_softcapping", 0},
                                                                                  {"logit_scale", 1},
                                                                                  {"embedding_scale", 1},
                                                                                  {"residual_scale", 1},
                                                                                  {"attention.scale", Json()},
                                                                                  {"attention.clamp_kqv", 0},
                                                                                  {"attention.causal", true},
                                                                                  {"attention.max_alibi_bias", 0},
                                                                                  {"expert_weights_scale", 1},
                                                                                  {"expert_group_count", 1},
                                                                                  {"expert_group_used_count", 1},
                                                                                  {"expert_shared_count", 0},
                                                                                  {"use_parallel_residual", false},
                                                                                  {"rope.scale_linear", 1},
                                                                                  {"rope.scaling.yarn_ext_factor", 1}};
    const GgufArchitecture& architecture = metadata.architecture();
    for (const auto& [key, neutral] : neutral_values)
        if (find_name(architecture.fields, key).empty()) metadata.refuse_other(key, neutral);
    metadata.refuse_other("expert_gating_func", architecture.gating);
}

void add_rope(const GgufMetadata& metadata, Json& config) {
    if (const Json* base = metadata.field("rope.freq_base")) config["rope_theta"] = *base;
    const Json &hidden = config["hidden_size"], &heads = config["num_attention_heads"];
    Json head_dim = config.value("head_dim", Json());
    if (head_dim.is_null() && hidden.is_number_unsigned() && heads.is_number_unsigned() && heads != 0)
        head_dim = hidden.get<std::uint64_t>() / heads.get<std::uint64_t>();
    const Json* dims = metadata.field("rope.dimension_count");
    if (dims && dims->is_number_unsigned() && head_dim.is_number_unsigned() && *dims != head_dim)
        config["partial_rotary_factor"] = (dims->get<double>() + 0.5) / head_dim.get<double>(); // it is rounded down
    const Json* type = metadata.field("rope.scaling.type");
    if (!type || *type == "none" || *type == "longrope") return;
    if (*type != "linear" && *type != "yarn") metadata.refuse_other("rope.scaling.type", "none");
    Json scaling = {{"rope_type", *type}, {"factor", metadata.required("rope.scaling.factor")}};
    if (*type == "yarn") {
        scaling["original_max_position_embeddings"] = metadata.required("rope.scaling.original_context_length");
        for (const auto& [key, name] : Names{{"rope.scaling.yarn_attn_factor", "attention_factor"},
                                             {"rope.scaling.yarn_beta_fast", "beta_fast"},
                                             {"rope.scaling.yarn_beta_slow", "beta_slow"}})
            if (const Json* value = metadata.field(key)) scaling[name] = *value;
        metadata.refuse_other("rope.scaling.yarn_log_multiplier", 0);
    }
    config["rope_scaling"] = std::move(scaling);
}

// Adds which layers have a window, if the file says so: by layer, or all but every n-th.
void add_window_pattern(const GgufMetadata& metadata, Json& config) {
    const Json* pattern = metadata.field("attention.sliding_window_pattern");
    if (!pattern || !config.contains("sliding_window") || !config["num_hidden_layers"].is_number_unsigned()) return;
    const auto n_layers = config["num_hidden_layers"].get<std::uint64_t>();
    const bool is_list = pattern->is_array() && pattern->size() >= n_layers;
    if (!is_list && !pattern->is_number_unsigned()) metadata.refuse_other("attention.sliding_window_pattern", Json());
    const std::uint64_t period = is_list ? 0 : pattern->get<std::uint64_t>();
    Json types = Json::array();
    for (std::uint64_t layer = 0; layer < n_layers && layer < kManyLayers; ++layer) {
        const bool slides =
            is_list ? (*pattern)[layer] == true || (*pattern)[layer] == 1 : period == 0 || layer % period + 1 < period;
        types.push_back(slides ? "sliding_attention" : "full_attention");
    }
    config["layer_types"] = std::move(types);
}

void add_ends(const GgufMetadata& metadata, Json& config) {
    const Json* bos = metadata.find("tokenizer.ggml.bos_token_id");
    config["bos_token_id"] = bos ? *bos : Json();
    const std::vector<std::uint64_t> ends = gguf_end_tokens(metadata);
    config["eos_token_id"] = ends.empty() ? Json() : Json(ends);
}

} // namespace

Json gguf_config(const GgufFile& file) {
    const GgufMetadata metadata(file);
    const GgufArchitecture& architecture = metadata.architecture();
    const TensorView* embedding = metadata.tensor("token_embd.weight");
    if (!embedding || embedding->shape.size() != 2) metadata.refuse("tensor 'token_embd.weight' is missing");
    refuse_unsupported(metadata);
    Json layers = metadata.required("block_count");
    if (const Json* further = metadata.field("nextn_predict_layers"); // of draft heads
        further && further->is_number_unsigned() && layers.is_number_unsigned() && *further < layers)
        layers = layers.get<std::uint64_t>() - further->get<std::uint64_t>();
    Json config = {{"model_type", architecture.model_type},
                   {"architectures", {architecture.class_name}},
                   {"vocab_size", static_cast<std::uint64_t>(embedding->shape[0])},
                   {"hidden_size", metadata.required("embedding_length")},
                   {"num_hidden_layers", layers},
                   {"num_attention_heads", metadata.required("attention.head_count")},
                   {"max_position_embeddings", metadata.required("context_length")},
                   {"tie_word_embeddings", metadata.tensor("output.weight") == nullptr}};
    for (const Names& fields : {Names{{"attention.head_count_kv", "num_key_value_heads"},
                                      {"attention.key_length", "head_dim"},
                                      {"feed_forward_length", "intermediate_size"}},
                                architecture.fields})
        for (const auto& [key, name] : fields)
            if (const Json* value = metadata.field(key)) config[name] = *value;
    for (const auto& [key, name] : architecture.fields)
        if (key.ends_with("epsilon")) metadata.required(key);
    for (const auto& [name, value] : architecture.implied.items())
        config[name] = value;
    if (const Json* values = metadata.field("attention.value_length");
        values && config.value("head_dim", Json()) != *values)
        metadata.refuse("keys and values of different lengths are not supported");
    add_rope(metadata, config);
    add_window_pattern(metadata, config);
    const TensorView* first = metadata.tensor("blk.0.attn_q.weight");
    const DiskType type = first ? first->type : embedding->type;
    config["dtype"] = type == DiskType::float16 ? "float16" : type == DiskType::bfloat16 ? "bfloat16" : "float32";
    add_ends(metadata, config);
    if (architecture.complete) architecture.complete(metadata, config);
    return config;
}

GgufDifferences gguf_differences(const GgufFile& file) {
    const GgufMetadata metadata(file);
    GgufDifferences found = {metadata.architecture().pairs_neighbours, metadata.architecture().norms_are_whole, {}};
    if (const TensorView* factors = metadata.tensor(kRopeFactors); factors && factors->type == DiskType::float32) {
        found.pair_factors.resize(factors->bytes.size() / sizeof(float));
        std::memcpy(found.pair_factors.data(), factors->bytes.data(), factors->bytes.size());
    }
    double bits = 0, gpu_bits = 0, elements = 0;
    bool is_quantised = false;
    std::map<std::string, Quantization> joint; // for queries, keys and values together, by layer
    const auto is_joint = [](const std::string& name) {
        return name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight") || name.ends_with(".attn_v.weight");
    };
    const auto layer_of = [](const std::string& name) { return name.substr(0, name.find(".attn")); };
    const auto for_each_tensor = [&](const auto& visit) {
        for (const TensorFile& part : file.parts)
            std::ranges::for_each(part.tensors, visit);
    };
    for_each_tensor([&](const TensorView& tensor) {
        if (!tensor.quantized || !is_joint(tensor.name)) return;
        const Quantization& of = tensor.quantized->of;
        Quantization& all = joint.try_emplace(layer_of(tensor.name), of).first->second; // as in gpu/stored_codes
        all.bits = std::max(all.bits, of.bits);
        all.group = std::min(all.group, of.group);
        all.has_zeros = all.has_zeros || of.has_zeros;
    });
    for_each_tensor([&](const TensorView& tensor) {
        if (tensor.shape.size() < 2) return;
        double n = 1;
        for (const std::int64_t dim : tensor.shape)
            n *= static_cast<double>(dim);
        elements += n;
        if (!tensor.quantized) {
            bits += n * 32; // at most, whatever the type in memory
            gpu_bits += n * 32;
            return;
        }
        bits += n * tensor.quantized->of.block->held_bits();
        const Quantization& of = is_joint(tensor.name) ? joint.at(layer_of(tensor.name)) : tensor.quantized->of;
        gpu_bits += n * ((of.group < 32 ? 8 : of.bits) + 32.0 * (of.has_zeros ? 2 : 1) / of.group); // in float32
        is_quantised = true;
    });
    if (is_quantised) found.memory_bits = bits / elements, found.gpu_memory_bits = gpu_bits / elements;
    return found;
}

namespace {

// For a layer's tensor, "blk.N.STEM.ENDING", returns the name after N, and the number N. Else returns an empty text.
std::string_view in_layer(std::string_view name, int& layer) {
    if (!name.starts_with("blk.")) return {};
    const char *begin = name.data() + 4, *end = name.data() + name.size();
    const auto [at, error] = std::from_chars(begin, end, layer);
    if (error != std::errc() || at == end || *at != '.') return {};
    return {at + 1, static_cast<std::size_t>(end - at - 1)};
}

// Returns the checkpoint's name for it, with * for an expert's number; empty: it has none.
std::string checkpoint_name(std::string_view name, const Names& of_architecture) {
    static const Names outer = {
        {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
    static const Names of_layer = {{"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
                                   {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
                                   {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
                                   {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
                                   {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
                                   {"ffn_down", "mlp.down_proj"}};
    int layer = 0;
    const std::string_view within = in_layer(name, layer);
    const std::string_view rest = within.empty() ? name : within;
    const std::string prefix = within.empty() ? "" : fmt::format("model.layers.{}.", layer);
    const std::string_view stem = rest.substr(0, rest.rfind('.')), ending = rest.substr(stem.size());
    if (const auto whole = find_name(of_architecture, rest); !within.empty() && !whole.empty())
        return prefix + std::string(whole);
    for (const Names& names : {within.empty() ? Names() : of_architecture, within.empty() ? outer : of_layer})
        if (const auto found = find_name(names, stem); !found.empty())
            return fmt::format("{}{}{}", prefix, found, ending);
    return "";
}

// Stems of matrices with an additional factor (NVFP4 has one), or one for each expert; and stems of all matrices that
// have codes.
struct FurtherScales {
    std::set<std::string> quantised;
    std::map<std::string, const TensorView*> scales;

    static std::string stem_of(const std::string& name) { return name.substr(0, name.rfind('.')); }
    explicit FurtherScales(const GgufFile& file) {
        for (const TensorFile& part : file.parts)
            for (const TensorView& tensor : part.tensors) {
                if (tensor.quantized) quantised.insert(stem_of(tensor.name));
                if (tensor.name.ends_with(".scale")) scales.emplace(stem_of(tensor.name), &tensor);
            }
    }
    // Returns true for such a scale, or for one of activations, which are not rounded here.
    bool has(const std::string& name) const {
        return (name.ends_with(".scale") || name.ends_with(".input_scale")) && quantised.contains(stem_of(name));
    }
    float of(const TensorView& tensor, std::size_t expert, std::size_t n_experts) const {
        const auto at = scales.find(stem_of(tensor.name));
        if (at == scales.end()) return 1;
        const TensorView& scale = *at->second;
        const std::size_t n = scale.bytes.size() / sizeof(float);
        if (scale.type != DiskType::float32 || (n != 1 && n != n_experts))
            throw BadFile(fmt::format("{}: tensor {} is not one F32 number, or one for each expert", *scale.file,
                                      in_quotes(scale.name)));
        float value;
        std::memcpy(&value, scale.bytes.data() + (n == 1 ? 0 : expert) * sizeof value, sizeof value);
        return value;
    }
};

// Returns matrix `i` of the `count` matrices of a tensor, which follow each other.
TensorView part_of(const TensorView& all, std::size_t i, std::size_t count, const FurtherScales& scales) {
    TensorView part = all;
    const std::size_t bytes = all.bytes.size() / count; // whole rows
    part.bytes = all.bytes.subspan(i * bytes, bytes);
    if (!all.quantized) return part;
    QuantizedMatrix matrix = *all.quantized;
    matrix.outputs /= static_cast<std::int64_t>(count);
    matrix.codes.bytes = part.bytes;
    matrix.scale_factor = scales.of(all, i, count);
    part.quantized = std::make_shared<const QuantizedMatrix>(std::move(matrix));
    return part;
}

// Splits a tensor of all experts into one for each.
void part_experts(const TensorView& all, const std::string& name, const FurtherScales& scales,
                  std::vector<TensorView>& out) {
    const std::size_t star = name.find('*');
    if (all.shape.size() < 2)
        throw BadFile(
            fmt::format("{}: tensor {} is not of experts, one behind the other", *all.file, in_quotes(all.name)));
    const auto n_experts = static_cast<std::size_t>(all.shape.front());
    for (std::size_t i = 0; i < n_experts; ++i) {
        TensorView expert = part_of(all, i, n_experts, scales);
        expert.name = fmt::format("{}{}{}", name.substr(0, star), i, name.substr(star + 1));
        expert.shape.erase(expert.shape.begin());
        out.push_back(std::move(expert));
    }
}

void refuse_unserved(const TensorView& tensor) {
    if (tensor.type != DiskType::other) return;
    throw BadFile(fmt::format("{}: tensor {} is of ggml's type {}, which is not served; get the model in another type, "
                              "or make a file of another: llama-quantize --allow-requantize THIS.gguf NEW.gguf Q8_0",
                              *tensor.file, in_quotes(tensor.name), tensor.dtype));
}

} // namespace

std::vector<TensorFile> gguf_tensors(GgufFile file) {
    static const std::set<std::string_view> in_config = {kRopeFactors, "rope_factors_long.weight",
                                                         "rope_factors_short.weight"};
    const Names names = GgufMetadata(file).architecture().tensors;
    const FurtherScales scales(file);
    std::vector<std::vector<TensorView>> renamed; // of each part; until the last one, scales are looked up in the file
    for (const TensorFile& part : file.parts) {
        std::vector<TensorView>& tensors = renamed.emplace_back();
        for (const TensorView& tensor : part.tensors) {
            if (in_config.contains(tensor.name) || scales.has(tensor.name)) continue;
            refuse_unserved(tensor);
            const std::string name = checkpoint_name(tensor.name, names);
            if (name.empty())
                throw BadFile(fmt::format("{}: tensor {} has no place in a model of its architecture", *tensor.file,
                                          in_quotes(tensor.name)));
            if (name.find('*') != std::string::npos) {
                part_experts(tensor, name, scales, tensors);
                continue;
            }
            tensors.push_back(part_of(tensor, 0, 1, scales));
            tensors.back().name = name;
        }
    }
    for (std::size_t i = 0; i < renamed.size(); ++i)
        file.parts[i].tensors = std::move(renamed[i]);
    return std::move(file.parts);
}

} // namespace entrodraft::model
