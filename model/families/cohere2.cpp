// Cohere 2 (Command R7B and A): attention and MLP in parallel after one LayerNorm without bias. Layers with a sliding
// window rotate pairs of neighbouring dimensions; the other layers do not rotate.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_cohere2(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    config.block = Block::parallel;
    config.shared_norm = true;
    config.norm = Norm::layer;
    config.norm_bias = false;
    config.norm_epsilon = read_epsilon(fields, "layer_norm_eps", 1e-5);
    config.activation = read_activation(fields, "hidden_act", "silu");
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    config.rope = read_rope(fields, {}, config);
    config.rope.interleaved = true;
    config.output_scale = static_cast<float>(fields.positive("logit_scale", 0.0625));
    const int window = fields.has("sliding_window") ? fields.size("sliding_window", 0) : 4096;
    const int pattern = fields.size("sliding_window_pattern", 4);
    read_windows(
        fields, [pattern](int layer) { return (layer + 1) % pattern != 0; }, window, config);
    for (int layer = 0; layer < config.n_layers; ++layer)
        config.layer_ropes.push_back(config.window(layer) > 0 ? LayerRope::common : LayerRope::none);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, 5, 255001, config);
}

TensorStems cohere2_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    stems.layer.mlp_norm = {};
    return stems;
}

} // namespace

FamilyDescription cohere2_family() {
    return {"cohere2", {"Cohere2ForCausalLM"}, read_cohere2, {"model.", ""}, cohere2_stems};
}

} // namespace entrodraft::model
