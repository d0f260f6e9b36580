// Phi 1, 1.5 and 2: attention and MLP side by side behind one LayerNorm, part of each head turned, biases everywhere.
#include "model/families/families.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

void read_phi(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    config.block = Block::parallel;
    config.shared_norm = true;
    config.norm = Norm::layer;
    config.norm_epsilon = read_epsilon(fields, "layer_norm_eps", 1e-5);
    config.activation = read_activation(fields, "hidden_act", "gelu_new");
    config.gated_mlp = false;
    config.qkv_bias = config.output_bias = config.mlp_bias = config.head_bias = true;
    config.rope = read_rope(fields, {"rope_theta", "partial_rotary_factor", 0.5, true}, config);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    read_token_ids(fields, 1, 2, config);
}

ModelNames phi_names(const ModelConfig&, const std::string& prefix) {
    ModelNames names;
    names.embedding = weight_only(prefix + "embed_tokens");
    names.final_norm = with_bias(prefix + "final_layernorm");
    names.head = with_bias("lm_head");
    names.layer = [prefix](int index) {
        const std::string layer = fmt::format("{}layers.{}.", prefix, index);
        LayerNames of_layer;
        of_layer.attention_norm = with_bias(layer + "input_layernorm");
        of_layer.query = with_bias(layer + "self_attn.q_proj");
        of_layer.key = with_bias(layer + "self_attn.k_proj");
        of_layer.value = with_bias(layer + "self_attn.v_proj");
        of_layer.output = with_bias(layer + "self_attn.dense");
        of_layer.up = with_bias(layer + "mlp.fc1");
        of_layer.down = with_bias(layer + "mlp.fc2");
        return of_layer;
    };
    names.ignores = [](std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); };
    return names;
}

} // namespace

FamilyDescription phi_family() {
    return {Family::phi, "phi", {"PhiForCausalLM"}, read_phi, {"model.", ""}, phi_names};
}

} // namespace entrodraft::model
