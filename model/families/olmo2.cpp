// OLMo 2: each half of a layer norms its output. All heads of a row's queries are normed together, and so are the heads
// of its keys.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_olmo2(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    config.block = Block::inner_norm;
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-5);
    config.query_key_norm = QueryKeyNorm::row;
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    read_token_ids(fields, -1, 50279, config);
}

TensorStems olmo2_stems(const ModelConfig& config) {
    TensorStems stems = describe("qwen3").stems(config);
    stems.layer.attention_norm = "post_attention_layernorm";
    stems.layer.mlp_norm = "post_feedforward_layernorm";
    return stems;
}

} // namespace

FamilyDescription olmo2_family() {
    return {"olmo2", {"Olmo2ForCausalLM"}, read_olmo2, {"model.", ""}, olmo2_stems};
}

} // namespace entrodraft::model
