// DeepSeek-V3 and R1: DeepSeek-V2 with a router that scores each expert independently; a bias corrects the choice.
#include "model/families/families.h"

namespace entrodraft::model {

void read_sigmoid_router(const Fields& fields, ModelConfig& config) {
    config.experts.score = RouterScore::sigmoid;
    config.experts.n_group_best = std::min(2, config.experts.n_experts / config.experts.n_groups);
    config.experts.normalizes = fields.boolean("norm_topk_prob", true);
}

namespace {

void read_deepseek_v3(const Fields& fields, ModelConfig& config) {
    read_latent_attention(fields, 1536, config);
    config.rope.interleaved = fields.boolean("rope_interleave", true);
    read_late_experts(fields, {256, 8, 2048, 1, 3, 2.5f, 8, 4}, config);
    read_sigmoid_router(fields, config);
    read_token_ids(fields, 0, 1, config);
}

TensorStems deepseek_v3_stems(const ModelConfig& config) {
    TensorStems stems = latent_stems(config);
    stems.layer.router_correction = "mlp.gate.e_score_correction_bias";
    return stems;
}

} // namespace

FamilyDescription deepseek_v3_family() {
    return {"deepseek_v3", {"DeepseekV3ForCausalLM"}, read_deepseek_v3, {"model.", ""}, deepseek_v3_stems};
}

} // namespace entrodraft::model
