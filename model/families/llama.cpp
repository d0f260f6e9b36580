// Llama 1 to 3, and the parts that its descendants share with it.
#include "model/families/families.h"

namespace entrodraft::model {

TensorStems llama_stems(const ModelConfig&) {
    return {.embedding = "embed_tokens",
            .final_norm = "norm",
            .layer = {.attention_norm = "input_layernorm",
                      .mlp_norm = "post_attention_layernorm",
                      .query = "self_attn.q_proj",
                      .key = "self_attn.k_proj",
                      .value = "self_attn.v_proj",
                      .output = "self_attn.o_proj",
                      .gate = "mlp.gate_proj",
                      .up = "mlp.up_proj",
                      .down = "mlp.down_proj"},
            .ignored = {"rotary_emb.inv_freq"}};
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
    return {"llama", {"LlamaForCausalLM", "LLaMAForCausalLM"}, read_llama, {"model.", ""}, llama_stems};
}

} // namespace entrodraft::model
