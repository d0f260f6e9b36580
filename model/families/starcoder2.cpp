// StarCoder2: LayerNorm, biases everywhere, a plain MLP, rotary positions.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_starcoder2(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    config.norm = Norm::layer;
    config.norm_epsilon = read_epsilon(fields, "norm_epsilon", 1e-5);
    config.activation = read_activation(fields, "hidden_act", "gelu_pytorch_tanh");
    config.gated_mlp = false;
    config.qkv_bias = config.output_bias = config.mlp_bias = fields.boolean("use_bias", true);
    config.rope = read_rope(fields, {}, config);
    const int window = fields.size("sliding_window", 0);
    if (window > 0) config.windows.assign(static_cast<std::size_t>(config.n_layers), window);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, 50256, 50256, config);
}

TensorStems starcoder2_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    stems.layer.gate = {};
    stems.layer.up = "mlp.c_fc";
    stems.layer.down = "mlp.c_proj";
    return stems;
}

} // namespace

FamilyDescription starcoder2_family() {
    return {"starcoder2", {"Starcoder2ForCausalLM"}, read_starcoder2, {"model.", ""}, starcoder2_stems};
}

} // namespace entrodraft::model
