// Phi 1, 1.5 and 2: attention and MLP in parallel after one LayerNorm, part of each head rotated, biases everywhere.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_phi(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    config.block = Block::parallel;
    config.shared_norm = true;
    config.norm = Norm::layer;
    config.norm_epsilon = read_epsilon(fields, "layer_norm_eps", 1e-5);
    config.activation = read_activation(fields, "hidden_act", "gelu_new");
    config.gated_mlp = false;
    config.qkv_bias = config.output_bias = config.mlp_bias = config.head_bias = true;
    config.rope = read_rope(fields, {"rope_theta", "partial_rotary_factor", 0.5, true}, config);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    read_token_ids(fields, 1, 2, config);
}

TensorStems phi_stems(const ModelConfig&) {
    return {.embedding = "embed_tokens",
            .final_norm = "final_layernorm",
            .layer = {.attention_norm = "input_layernorm",
                      .query = "self_attn.q_proj",
                      .key = "self_attn.k_proj",
                      .value = "self_attn.v_proj",
                      .output = "self_attn.dense",
                      .up = "mlp.fc1",
                      .down = "mlp.fc2"},
            .ignored = {"rotary_emb.inv_freq"}};
}

} // namespace

FamilyDescription phi_family() {
    return {"phi", {"PhiForCausalLM"}, read_phi, {"model.", ""}, phi_stems};
}

} // namespace entrodraft::model
