// Gemma 2: Gemma with capped scores and logits, norms around both halves of a layer, and a sliding window on every
// other layer.
#include "model/families/families.h"

#include <cmath>

namespace entrodraft::model {
namespace {

void read_gemma2(const Fields& fields, ModelConfig& config) {
    read_gemma_like(fields, config);
    config.block = Block::sandwich;
    config.activation = read_activation(fields, "hidden_activation", "gelu_pytorch_tanh");
    config.attention_scale = 1.0f / std::sqrt(static_cast<float>(fields.positive("query_pre_attn_scalar", 256)));
    const auto cap = [&](const char* name, double default_value) { // missing: the default; null: none
        return static_cast<float>(fields.has(name) ? fields.positive(name, 0) : default_value);
    };
    config.attention_soft_cap = cap("attn_logit_softcapping", 50);
    config.logit_soft_cap = cap("final_logit_softcapping", 30);
    const int window = fields.has("sliding_window") ? fields.size("sliding_window", 0) : 4096;
    read_windows(
        fields, [](int layer) { return layer % 2 == 0; }, window, config);
}

TensorStems gemma2_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    stems.layer.after_attention_norm = "post_attention_layernorm";
    stems.layer.mlp_norm = "pre_feedforward_layernorm";
    stems.layer.after_mlp_norm = "post_feedforward_layernorm";
    return stems;
}

} // namespace

FamilyDescription gemma2_family() {
    return {"gemma2", {"Gemma2ForCausalLM"}, read_gemma2, {"model.", ""}, gemma2_stems};
}

} // namespace entrodraft::model
