// GLM-4.5 and later models of this type: half of each head is rotated. Later layers have experts with DeepSeek-V3's
// router, and a shared expert, which all rows go through.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_glm4_moe(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    config.norm = Norm::rms;
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-5);
    config.activation = read_activation(fields, "hidden_act", "silu");
    config.qkv_bias = fields.boolean("attention_bias", false);
    if (fields.boolean("use_qk_norm", false)) config.query_key_norm = QueryKeyNorm::head;
    config.rope = read_rope(fields, {"rope_theta", "partial_rotary_factor", 0.5, true}, config);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    read_late_experts(fields, {128, 8, 1408, 1, 1}, config);
    read_sigmoid_router(fields, config);
    read_token_ids(fields, -1, -1, config);
}

TensorStems glm4_moe_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    if (config.query_key_norm == QueryKeyNorm::head) {
        stems.layer.query_norm = "self_attn.q_norm";
        stems.layer.key_norm = "self_attn.k_norm";
    }
    add_late_expert_stems(stems);
    stems.layer.router_correction = "mlp.gate.e_score_correction_bias";
    return stems;
}

} // namespace

FamilyDescription glm4_moe_family() {
    return {"glm4_moe", {"Glm4MoeForCausalLM"}, read_glm4_moe, {"model.", ""}, glm4_moe_stems};
}

} // namespace entrodraft::model
