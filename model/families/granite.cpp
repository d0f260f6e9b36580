// Granite 3: Llama with embeddings, residuals, scores and logits scaled.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

// x += m f(norm x) equals z += f(norm z) for z = x / m, if epsilon is divided by the square of m.
void scale_residuals(double multiplier, ModelConfig& config) {
    config.residual_scale = static_cast<float>(multiplier);
    config.embedding_scale /= config.residual_scale;
    config.norm_epsilon /= config.residual_scale * config.residual_scale;
}

void read_granite(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    config.mlp_bias = fields.boolean("mlp_bias", false);
    config.attention_scale = static_cast<float>(fields.positive("attention_multiplier", 1));
    config.embedding_scale = static_cast<float>(fields.positive("embedding_multiplier", 1));
    config.output_scale = static_cast<float>(1 / fields.positive("logits_scaling", 1));
    scale_residuals(fields.positive("residual_multiplier", 1), config);
    read_token_ids(fields, 1, 2, config);
}

} // namespace

FamilyDescription granite_family() {
    return {"granite", {"GraniteForCausalLM"}, read_granite, {"model.", ""}, llama_stems};
}

} // namespace entrodraft::model
