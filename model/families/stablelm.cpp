// StableLM: LayerNorm, a quarter of each head rotated, attention and MLP in turn or in parallel.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_stablelm(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    config.block = fields.boolean("use_parallel_residual", false) ? Block::parallel : Block::pre_norm;
    config.shared_norm = config.block == Block::parallel;
    config.norm = Norm::layer;
    config.norm_epsilon = read_epsilon(fields, "layer_norm_eps", 1e-5);
    config.activation = read_activation(fields, "hidden_act", "silu");
    config.qkv_bias = fields.boolean("use_qkv_bias", false);
    config.rope = read_rope(fields, {"rope_theta", "partial_rotary_factor", 0.25, true}, config);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    read_token_ids(fields, 0, 0, config);
}

TensorStems stablelm_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    if (config.shared_norm) stems.layer.mlp_norm = {};
    return stems;
}

} // namespace

FamilyDescription stablelm_family() {
    return {"stablelm", {"StableLmForCausalLM"}, read_stablelm, {"model.", ""}, stablelm_stems};
}

} // namespace entrodraft::model
