// GPT-2, 124M to xl: LayerNorm, learned positions, matrices stored [in, out], tied embeddings.
#include "model/families/families.h"

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

TensorStems gpt2_stems(const ModelConfig&) {
    return {.embedding = "wte",
            .positions = "wpe",
            .final_norm = "ln_f",
            .layers = "h",
            .layer = {.attention_norm = "ln_1",
                      .mlp_norm = "ln_2",
                      .qkv = "attn.c_attn",
                      .output = "attn.c_proj",
                      .up = "mlp.c_fc",
                      .down = "mlp.c_proj"},
            .qkv = QkvForm::stacked,
            .transposed = true,
            .ignored = {".attn.bias", ".attn.masked_bias"}}; // causal masks in old files
}

} // namespace

FamilyDescription gpt2_family() {
    return {"gpt2", {"GPT2LMHeadModel"}, read_gpt2, {"transformer.", ""}, gpt2_stems};
}

} // namespace entrodraft::model
