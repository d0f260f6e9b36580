// Qwen3: Llama with queries and keys normed head by head. The size of a head is a field of its own.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_qwen3(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    // Missing: transformers' default, whatever the hidden size; null: one head's share of it.
    if (!fields.has("head_dim")) {
        config.head_dim = 128;
        config.rope = read_rope(fields, {}, config);
    }
    config.query_key_norm = QueryKeyNorm::head;
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    read_late_windows(fields, config);
    read_token_ids(fields, -1, -1, config);
}

TensorStems qwen3_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    stems.layer.query_norm = "self_attn.q_norm";
    stems.layer.key_norm = "self_attn.k_norm";
    return stems;
}

} // namespace

FamilyDescription qwen3_family() {
    return {"qwen3", {"Qwen3ForCausalLM"}, read_qwen3, {"model.", ""}, qwen3_stems};
}

} // namespace entrodraft::model
