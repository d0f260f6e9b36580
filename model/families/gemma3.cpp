// Gemma 3 (text): Gemma 2 without caps, with queries and keys normed head by head. Layers with a sliding window have
// rotary angles of their own.
#include "model/families/families.h"

#include <cmath>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;

// Reads rope_parameters if it has an object for each kind of layer; else rope_scaling, only for full attention.
Rope read_rope_of(const Fields& fields, const char* kind, const char* theta, double default_theta,
                  ModelConfig& config) {
    Json of_kind = Json::object();
    if (const Json* all = fields.find("rope_parameters"); all != nullptr && all->is_object() && all->contains(kind))
        of_kind["rope_parameters"] = (*all)[kind];
    else if (const Json* scaling = fields.find("rope_scaling"); scaling != nullptr && kind[0] == 'f')
        of_kind["rope_scaling"] = *scaling;
    of_kind["rope_theta"] = Json();
    if (!of_kind.contains("rope_parameters")) of_kind["rope_theta"] = fields.positive(theta, default_theta);
    return read_rope(Fields(of_kind, fields.file() + ": " + kind), {}, config);
}

void read_gemma3(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    if (!fields.has("head_dim")) config.head_dim = 256; // transformers' default, whatever the hidden size
    config.block = Block::sandwich;
    config.norm = Norm::rms;
    config.norm_offset = 1;
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-6);
    config.activation = read_activation(fields, "hidden_activation", "gelu_pytorch_tanh");
    config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    config.query_key_norm = QueryKeyNorm::head;
    config.attention_scale = 1.0f / std::sqrt(static_cast<float>(fields.positive("query_pre_attn_scalar", 256)));
    const int window = fields.has("sliding_window") ? fields.size("sliding_window", 0) : 4096;
    const int pattern = fields.size("sliding_window_pattern", 6);
    read_windows(
        fields, [pattern](int layer) { return (layer + 1) % pattern != 0; }, window, config);
    config.rope = read_rope_of(fields, "full_attention", "rope_theta", 1e6, config);
    config.local_rope = read_rope_of(fields, "sliding_attention", "rope_local_base_freq", 1e4, config);
    for (int layer = 0; layer < config.n_layers; ++layer)
        config.layer_ropes.push_back(config.window(layer) > 0 ? LayerRope::local : LayerRope::common);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, 2, 1, config);
}

TensorStems gemma3_stems(const ModelConfig& config) {
    TensorStems stems = describe("gemma2").stems(config);
    stems.layer.query_norm = "self_attn.q_norm";
    stems.layer.key_norm = "self_attn.k_norm";
    return stems;
}

} // namespace

FamilyDescription gemma3_family() {
    return {"gemma3_text", {"Gemma3ForCausalLM"}, read_gemma3, {"model.", ""}, gemma3_stems};
}

} // namespace entrodraft::model
