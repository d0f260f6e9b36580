// OLMoE: Llama with experts in every layer. All heads of a row's queries are normed together, and so are the heads of
// its keys.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_olmoe(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-5);
    config.query_key_norm = QueryKeyNorm::row;
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    if (fields.find("clip_qkv") != nullptr) fields.refuse("'clip_qkv' is not supported");
    config.experts.n_experts = fields.size("num_experts", 64);
    config.experts.intermediate_size = config.intermediate_size;
    config.experts.normalizes = fields.boolean("norm_topk_prob", false);
    read_n_chosen(fields, 8, config);
    read_token_ids(fields, -1, 50279, config);
}

TensorStems olmoe_stems(const ModelConfig& config) {
    TensorStems stems = describe("qwen3").stems(config);
    add_expert_stems(stems);
    return stems;
}

} // namespace

FamilyDescription olmoe_family() {
    return {"olmoe", {"OlmoeForCausalLM"}, read_olmoe, {"model.", ""}, olmoe_stems};
}

} // namespace entrodraft::model
