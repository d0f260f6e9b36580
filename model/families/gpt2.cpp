// GPT-2, 124M to xl: LayerNorm, learned positions, matrices stored [in, out], tied embeddings.
#include "model/families/families.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

void read_gpt2(const Fields& fields, ModelConfig& config) {
    config.vocab_size = fields.size("vocab_size", 50257);
    config.hidden_size = fields.size("n_embd", 768);
    config.n_layers = fields.size("n_layer", 12);
    config.n_heads = config.n_kv_heads = fields.size("n_head", 12);
    config.max_positions = fields.size("n_positions", 1024);
    divide_into_heads(fields, config, "n_embd", "n_head");
    if (4LL * config.hidden_size > kMaxSize) fields.refuse("'n_embd' is too large");
    config.intermediate_size = fields.size("n_inner", 4 * config.hidden_size);
    config.norm = Norm::layer;
    config.norm_epsilon = read_epsilon(fields, "layer_norm_epsilon", 1e-5);
    config.activation = read_activation(fields, "activation_function", "gelu_new");
    config.gated_mlp = false;
    config.qkv_bias = config.output_bias = config.mlp_bias = true;
    config.positions = Positions::learned;
    if (!fields.boolean("scale_attn_weights", true)) config.attention_scale = 1;
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, 50256, 50256, config);
}

ModelNames gpt2_names(const ModelConfig&, const std::string& prefix) {
    ModelNames names;
    names.embedding = weight_only(prefix + "wte");
    names.positions = weight_only(prefix + "wpe");
    names.final_norm = with_bias(prefix + "ln_f");
    names.head = weight_only("lm_head");
    names.qkv = QkvForm::stacked;
    names.transposed = true;
    names.layer = [prefix](int index) {
        const std::string layer = fmt::format("{}h.{}.", prefix, index);
        LayerNames of_layer;
        of_layer.attention_norm = with_bias(layer + "ln_1");
        of_layer.mlp_norm = with_bias(layer + "ln_2");
        of_layer.qkv = with_bias(layer + "attn.c_attn");
        of_layer.output = with_bias(layer + "attn.c_proj");
        of_layer.up = with_bias(layer + "mlp.c_fc");
        of_layer.down = with_bias(layer + "mlp.c_proj");
        return of_layer;
    };
    // Causal masks, which old files carry.
    names.ignores = [](std::string_view name) {
        return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
    };
    return names;
}

} // namespace

FamilyDescription gpt2_family() {
    return {Family::gpt2, "gpt2", {"GPT2LMHeadModel"}, read_gpt2, {"transformer.", ""}, gpt2_names};
}

} // namespace entrodraft::model
