// GLM-4: norms around both halves of a layer. In half of each head, pairs of neighbouring dimensions are rotated.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_glm4(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    if (!fields.has("head_dim")) config.head_dim = 128; // transformers' default, whatever the hidden size
    config.block = Block::sandwich;
    config.norm = Norm::rms;
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1.5625e-7);
    config.activation = read_activation(fields, "hidden_act", "silu");
    config.qkv_bias = fields.boolean("attention_bias", true);
    config.rope = read_rope(fields, {"rope_theta", "partial_rotary_factor", 0.5, true}, config);
    config.rope.interleaved = true;
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    read_token_ids(fields, -1, 151329, config);
}

TensorStems glm4_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    stems.layer.after_attention_norm = "post_self_attn_layernorm";
    stems.layer.after_mlp_norm = "post_mlp_layernorm";
    stems.layer.gate = stems.layer.up = {};
    stems.layer.gate_up = "mlp.gate_up_proj";
    return stems;
}

} // namespace

FamilyDescription glm4_family() {
    return {"glm4", {"Glm4ForCausalLM"}, read_glm4, {"model.", ""}, glm4_stems};
}

} // namespace entrodraft::model
