// Gemma: Llama with 1 subtracted from the stored norm weights, embeddings scaled up, and a GELU gate.
#include "model/families/families.h"

#include <cmath>

namespace entrodraft::model {

void read_gemma_like(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    if (!fields.has("head_dim")) config.head_dim = 256; // transformers' default, whatever the hidden size
    config.norm = Norm::rms;
    config.norm_offset = 1;
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-6);
    config.rope = read_rope(fields, {}, config);
    config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, 2, 1, config);
}

namespace {

void read_gemma(const Fields& fields, ModelConfig& config) {
    read_gemma_like(fields, config);
    config.activation = read_activation(fields, "hidden_act", "gelu_pytorch_tanh");
    if (config.activation == Activation::gelu) config.activation = Activation::gelu_tanh; // "gelu" meant it there
}

} // namespace

FamilyDescription gemma_family() {
    return {"gemma", {"GemmaForCausalLM"}, read_gemma, {"model.", ""}, llama_stems};
}

} // namespace entrodraft::model
