// Finds the family and lets it read its fields. Refuses fields that would change the arithmetic and were not read.
#include "model/families/read_config.h"

#include "model/families/families.h"
#include "model/families/generation_config.h"
#include "model/files/bad_file.h"
#include "model/files/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;

constexpr double kMaxParameters = 1e14;

// Returns true if layer_types only repeats the default.
bool all_full_attention(const Json& types) {
    if (!types.is_array()) return false;
    for (const Json& type : types)
        if (type != "full_attention") return false;
    return true;
}

// Fields of various families that change the arithmetic in an unsupported way, by their neutral values. A null or a
// missing field changes nothing. A family that reads a field knows its meaning; a field that is not read is refused by
// name.
void refuse_unsupported(const Fields& fields) {
    static const std::pair<Json, std::vector<std::string>> by_neutral_value[] = {
        {false,
         {"attention_bias", "mlp_bias", "qkv_bias", "use_bias", "use_qk_norm", "qk_layernorm", "use_sliding_window",
          "apply_residual_connection_post_layernorm", "use_bidirectional_attention", "add_cross_attention",
          "is_encoder_decoder", "alibi", "rope_interleaved", "scale_attn_by_inverse_layer_idx"}},
        {true, {"rotary"}},
        {0, {"num_local_experts", "num_experts", "n_routed_experts"}},
        {1,
         {"partial_rotary_factor", "rotary_pct", "logit_scale", "logits_scaling", "embedding_multiplier",
          "residual_multiplier", "scale_emb"}},
        {nullptr,
         {"sliding_window", "layer_types", "attention_chunk_size", "rotary_dim", "rope_scaling", "compression_config",
          "final_logit_softcapping", "attn_logit_softcapping", "query_pre_attn_scalar", "attention_multiplier",
          "scale_depth", "dim_model_base", "no_rope_layers"}},
    };
    for (const auto& [neutral, names] : by_neutral_value) {
        for (const std::string& name : names) {
            if (fields.was_read(name)) continue;
            const Json* value = fields.find(name.c_str());
            if (value == nullptr || *value == neutral) continue;
            if (name == "layer_types" && all_full_attention(*value)) continue;
            fields.refuse("field '" + name + "' is " + shown(*value) + ", which is not supported");
        }
    }
}

const FamilyDescription& family_of(const Fields& fields) {
    const Json& type = fields.required("model_type");
    for (const FamilyDescription& family : families()) {
        const auto is_type = [&](const std::string& other) { return type == other; };
        if (type != family.model_type && std::ranges::none_of(family.other_types, is_type)) continue;
        const Json* architectures = fields.find("architectures");
        bool found = architectures == nullptr;
        if (architectures != nullptr && architectures->is_array())
            for (const std::string& known : family.architectures)
                for (const Json& each : *architectures)
                    found = found || each == known;
        if (!found)
            fields.refuse("field 'architectures' is " + shown(*architectures) +
                          "; supported: " + family.architectures.front());
        return family;
    }
    std::string supported;
    for (const FamilyDescription& family : families())
        supported += (supported.empty() ? "" : ", ") + family.model_type;
    fields.refuse("model type " + shown(type) + " is not supported; supported: " + supported);
}

WeightType read_weight_type(const Fields& fields) {
    const std::string name = fields.string("dtype", fields.string("torch_dtype", "float32"));
    for (const WeightType type : {WeightType::float32, WeightType::bfloat16, WeightType::float16}) {
        if (name == to_string(type)) return type;
    }
    fields.refuse("dtype " + in_quotes(name) + " is not supported; supported: float32, bfloat16, float16");
}

// Computes in floating point, where nothing overflows: below the limit the whole-number count is exact.
void refuse_absurd_size(const Fields& fields, const ModelConfig& config) {
    // Queries, keys and values of a token lie in one row.
    if ((config.n_heads + std::int64_t{2} * config.n_kv_heads) * config.head_dim > kMaxSize) {
        fields.refuse(fmt::format(
            "'num_attention_heads' and twice 'num_key_value_heads', times 'head_dim', is more than {}", kMaxSize));
    }
    const LatentConfig& latent = config.latent;
    const std::int64_t of_head = std::int64_t{latent.rank} + latent.plain_dim + latent.rotated_dim + latent.value_dim;
    if (config.n_heads * of_head > kMaxSize || std::int64_t{latent.query_rank} + latent.rank > kMaxSize)
        fields.refuse(
            fmt::format("'kv_lora_rank', 'q_lora_rank' and the sizes of heads make rows of more than {}", kMaxSize));
    constexpr int kMaxHeads = 1 << 16; // each head is listed in the plan of a layer
    if (std::max({config.n_heads, config.n_kv_heads, config.linear.n_key_heads}) > kMaxHeads)
        fields.refuse(fmt::format("more than {} attention heads are not supported", kMaxHeads));
    constexpr std::int64_t kMaxExperts = 1'000'000; // of all layers
    if (std::int64_t{config.n_layers} * config.experts.n_experts > kMaxExperts)
        fields.refuse(fmt::format("the layers have more than {} experts together", kMaxExperts));
    const double hidden = config.hidden_size;
    const double heads = static_cast<double>(config.n_heads) * config.head_dim;
    const double experts = static_cast<double>(config.experts.n_experts) * config.experts.intermediate_size;
    const double layer = hidden * (4 * heads + 3.0 * (config.intermediate_size + experts + config.experts.shared_size));
    const LinearAttentionConfig& linear = config.linear;
    const double values = static_cast<double>(linear.n_value_heads) * linear.value_dim;
    const double of_linear =
        hidden * (2.0 * linear.n_key_heads * linear.key_dim + 3 * values) + values * linear.key_dim;
    const EncoderConfig& encoder = config.encoder;
    const double of_encoder = hidden * (4.0 * encoder.n_heads * encoder.head_dim + 3.0 * encoder.intermediate_size);
    if (config.n_linear_layers() * of_linear + encoder.n_layers * of_encoder +
            config.n_layers * (layer + 4 * heads * hidden) + 2.0 * config.vocab_size * hidden >
        kMaxParameters) {
        fields.refuse("the sizes make a model of more than 1e14 parameters");
    }
}

} // namespace

Json decoder_fields(Json json, const std::string& file) {
    const Json type = json.is_object() ? json.value("model_type", Json()) : Json();
    const auto family = std::ranges::find_if(families(), [&](const FamilyDescription& each) {
        return !each.multimodal_type.empty() && type == each.multimodal_type;
    });
    if (family == families().end()) return json;
    const Fields whole(json, file);
    Json text = whole.required("text_config");
    if (!text.is_object()) whole.refuse("field 'text_config' is not an object");
    text["model_type"] = family->model_type;
    for (const char* name : {"architectures", "dtype", "torch_dtype", "tie_word_embeddings", "quantization_config",
                             "bos_token_id", "eos_token_id"}) {
        const Json* value = whole.find(name);
        if (value != nullptr && text.value(name, Json()).is_null()) text[name] = *value;
    }
    return text;
}

ModelConfig read_config(const Json& json_file, const std::string& file) {
    const Json json = decoder_fields(json_file, file);
    const Fields fields(json, file);
    const FamilyDescription& family = family_of(fields);

    ModelConfig config;
    config.family = family.model_type;
    family.read(fields, config);
    if (config.embedding_size == 0) config.embedding_size = config.hidden_size;
    if (config.attention_scale == 0) config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
    refuse_unsupported(fields);
    refuse_absurd_size(fields, config);
    config.stored_type = read_weight_type(fields);
    config.quantization = read_quantization(json, file);
    return config;
}

namespace {

ModelConfig read_gguf_config(const std::filesystem::path& path) {
    const GgufFile file = open_gguf(path);
    ModelConfig config = read_config(gguf_config(file), path.string());
    GgufDifferences differences = gguf_differences(file);
    if (differences.pairs_neighbours) config.rope.interleaved = true;
    if (differences.norms_are_whole) config.norm_offset = 0;
    if (differences.memory_bits > 0)
        config.quantization = Quantization{.form = QuantizedForm::blocks,
                                           .memory_bits = differences.memory_bits,
                                           .gpu_memory_bits = differences.gpu_memory_bits};
    if (differences.pair_factors.empty()) return config;
    const bool fits = differences.pair_factors.size() == static_cast<std::size_t>(config.rope.dims / 2);
    if (!fits || std::ranges::any_of(differences.pair_factors, [](float factor) { return !(factor > 0); }))
        throw BadFile(path.string() + ": tensor 'rope_freqs.weight' is not a number above 0 for each pair");
    config.rope.scaling = RopeScaling::by_pair;
    config.rope.pair_factors = std::move(differences.pair_factors);
    return config;
}

} // namespace

ModelConfig read_config(const std::filesystem::path& directory) {
    if (const auto file = gguf_file_of(directory)) return read_gguf_config(*file);
    const auto path = directory / "config.json";
    ModelConfig config = read_config(read_object(path), path.string());
    read_text_ends(directory, config);
    return config;
}

} // namespace entrodraft::model
