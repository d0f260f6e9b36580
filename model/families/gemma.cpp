// Gemma 1 and 2: Llama with norm weights stored less one, embeddings scaled up, and a GELU gate; Gemma 2 with capped
// scores and logits, norms around both halves of a layer, and a sliding window on every other layer.
#include "model/families/families.h"

#include <cmath>
#include <fmt/format.h>

namespace entrodraft::model {
namespace {

void read_either(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    if (!fields.has("head_dim")) config.head_dim = 256; // transformers' default, whatever the hidden size
    config.norm = Norm::rms;
    config.norm_offset = 1;
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-6);
    config.rope = read_rope(fields, {}, config);
    config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, 2, 1, config);
}

void read_gemma(const Fields& fields, ModelConfig& config) {
    read_either(fields, config);
    config.activation = read_activation(fields, "hidden_act", "gelu_pytorch_tanh");
    if (config.activation == Activation::gelu) config.activation = Activation::gelu_tanh; // what "gelu" meant there
}

void read_gemma2(const Fields& fields, ModelConfig& config) {
    read_either(fields, config);
    config.block = Block::sandwich;
    config.activation = read_activation(fields, "hidden_activation", "gelu_pytorch_tanh");
    config.attention_scale = 1.0f / std::sqrt(static_cast<float>(fields.positive("query_pre_attn_scalar", 256)));
    const auto cap = [&](const char* name, double default_value) { // missing: the default; null: none
        return static_cast<float>(fields.has(name) ? fields.positive(name, 0) : default_value);
    };
    config.attention_soft_cap = cap("attn_logit_softcapping", 50);
    config.logit_soft_cap = cap("final_logit_softcapping", 30);
    const int window = fields.has("sliding_window") ? fields.size("sliding_window", 0) : 4096;
    read_windows(
        fields, [](int layer) { return layer % 2 == 0; }, window, config);
}

ModelNames gemma2_names(const ModelConfig& config, const std::string& prefix) {
    ModelNames names = llama_names(config, prefix);
    names.layer = [config, prefix](int index) {
        LayerNames layer = llama_layer(config, prefix, index);
        const std::string stem = fmt::format("{}layers.{}.", prefix, index);
        layer.after_attention_norm = weight_only(stem + "post_attention_layernorm");
        layer.mlp_norm = weight_only(stem + "pre_feedforward_layernorm");
        layer.after_mlp_norm = weight_only(stem + "post_feedforward_layernorm");
        return layer;
    };
    return names;
}

} // namespace

FamilyDescription gemma_family() {
    return {Family::gemma, "gemma", {"GemmaForCausalLM"}, read_gemma, {"model.", ""}, llama_names};
}

FamilyDescription gemma2_family() {
    return {Family::gemma2, "gemma2", {"Gemma2ForCausalLM"}, read_gemma2, {"model.", ""}, gemma2_names};
}

} // namespace entrodraft::model
