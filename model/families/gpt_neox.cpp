// GPT-NeoX and Pythia: LayerNorm, part of each head rotated, attention and MLP in parallel (or one after the other).
// One matrix has query, key and value of each head next to each other.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_gpt_neox(const Fields& fields, ModelConfig& config) {
    config.vocab_size = fields.size("vocab_size", 50432);
    config.hidden_size = fields.size("hidden_size", 6144);
    config.n_layers = fields.size("num_hidden_layers", 44);
    config.n_heads = config.n_kv_heads = fields.size("num_attention_heads", 64);
    config.intermediate_size = fields.size("intermediate_size", 24576);
    config.max_positions = fields.size("max_position_embeddings", 2048);
    divide_into_heads(fields, config, "hidden_size", "num_attention_heads");
    config.block = fields.boolean("use_parallel_residual", true) ? Block::parallel : Block::pre_norm;
    config.norm = Norm::layer;
    config.norm_epsilon = read_epsilon(fields, "layer_norm_eps", 1e-5);
    config.activation = read_activation(fields, "hidden_act", "gelu");
    config.gated_mlp = false;
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", true);
    config.mlp_bias = true;
    config.rope = read_rope(fields, {"rotary_emb_base", "rotary_pct", 0.25, true}, config);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    read_token_ids(fields, 0, 2, config);
}

TensorStems gpt_neox_stems(const ModelConfig&) {
    return {.embedding = "embed_in",
            .final_norm = "final_layer_norm",
            .head = "embed_out",
            .layer = {.attention_norm = "input_layernorm",
                      .mlp_norm = "post_attention_layernorm",
                      .qkv = "attention.query_key_value",
                      .output = "attention.dense",
                      .up = "mlp.dense_h_to_4h",
                      .down = "mlp.dense_4h_to_h"},
            .qkv = QkvForm::grouped,
            // Causal masks and angles in old files.
            .ignored = {".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq"}};
}

} // namespace

FamilyDescription gpt_neox_family() {
    return {"gpt_neox", {"GPTNeoXForCausalLM"}, read_gpt_neox, {"gpt_neox.", ""}, gpt_neox_stems};
}

} // namespace entrodraft::model
