// Llama 1 to 3, and what its descendants share with it.
#include "model/families/families.h"

#include <fmt/format.h>

namespace entrodraft::model {

LayerNames llama_layer(const ModelConfig& config, const std::string& prefix, int index) {
    const std::string layer = fmt::format("{}layers.{}.", prefix, index);
    LayerNames names;
    names.attention_norm = weight_only(layer + "input_layernorm");
    names.mlp_norm = weight_only(layer + "post_attention_layernorm");
    names.query = with_bias(layer + "self_attn.q_proj", config.qkv_bias);
    names.key = with_bias(layer + "self_attn.k_proj", config.qkv_bias);
    names.value = with_bias(layer + "self_attn.v_proj", config.qkv_bias);
    names.output = with_bias(layer + "self_attn.o_proj", config.output_bias);
    names.gate = with_bias(layer + "mlp.gate_proj", config.mlp_bias);
    names.up = with_bias(layer + "mlp.up_proj", config.mlp_bias);
    names.down = with_bias(layer + "mlp.down_proj", config.mlp_bias);
    return names;
}

ModelNames llama_names(const ModelConfig& config, const std::string& prefix) {
    ModelNames names;
    names.embedding = weight_only(prefix + "embed_tokens");
    names.final_norm = weight_only(prefix + "norm");
    names.head = weight_only("lm_head");
    names.layer = [config, prefix](int index) { return llama_layer(config, prefix, index); };
    names.ignores = [](std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); };
    return names;
}

void read_llama_like(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    config.norm = Norm::rms;
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-6);
    config.activation = read_activation(fields, "hidden_act", "silu");
    config.gated_mlp = true;
    config.rope = read_rope(fields, {}, config);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
}

namespace {

void read_llama(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    config.mlp_bias = fields.boolean("mlp_bias", false);
    fields.find("pretraining_tp"); // how a larger model's sums were cut in training: no other arithmetic
    read_token_ids(fields, 1, 2, config);
}

} // namespace

FamilyDescription llama_family() {
    return {Family::llama, "llama", {"LlamaForCausalLM", "LLaMAForCausalLM"}, read_llama, {"model.", ""}, llama_names};
}

} // namespace entrodraft::model
