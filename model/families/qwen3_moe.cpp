// Qwen3-MoE: Qwen3 with experts.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_qwen3_moe(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    config.query_key_norm = QueryKeyNorm::head;
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    read_experts(fields, 128, 8, 768, config);
    const int window = fields.size("sliding_window", 4096);
    if (fields.boolean("use_sliding_window", false))
        config.windows.assign(static_cast<std::size_t>(config.n_layers), window);
    read_token_ids(fields, -1, -1, config);
}

TensorStems qwen3_moe_stems(const ModelConfig& config) {
    TensorStems stems = describe("qwen3").stems(config);
    add_expert_stems(stems);
    return stems;
}

} // namespace

FamilyDescription qwen3_moe_family() {
    return {"qwen3_moe", {"Qwen3MoeForCausalLM"}, read_qwen3_moe, {"model.", ""}, qwen3_moe_stems};
}

} // namespace entrodraft::model
