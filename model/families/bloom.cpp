// BLOOM: ALiBi, LayerNorm also over the embeddings, and biases everywhere. One matrix has query, key and value of each
// head next to each other.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_bloom(const Fields& fields, ModelConfig& config) {
    config.vocab_size = fields.size("vocab_size", 250880);
    config.hidden_size = fields.size("hidden_size", fields.size("n_embed", 64));
    config.n_layers = fields.size("num_hidden_layers", fields.size("n_layer", 2));
    config.n_heads = config.n_kv_heads = fields.size("num_attention_heads", fields.size("n_head", 8));
    config.max_positions = fields.size("seq_length", 2048); // it was trained for this number: positions have no table
    divide_into_heads(fields, config, "hidden_size", "n_head");
    if (4LL * config.hidden_size > kMaxSize) fields.refuse("'hidden_size' is too large");
    config.intermediate_size = 4 * config.hidden_size;
    config.norm = Norm::layer;
    config.norm_epsilon = read_epsilon(fields, "layer_norm_epsilon", 1e-5);
    config.activation = Activation::gelu_tanh;
    config.gated_mlp = false;
    config.qkv_bias = config.output_bias = config.mlp_bias = config.embedding_norm = true;
    config.positions = Positions::alibi;
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, 1, 2, config);
}

TensorStems bloom_stems(const ModelConfig&) {
    return {.embedding = "word_embeddings",
            .final_norm = "ln_f",
            .embedding_norm = "word_embeddings_layernorm",
            .layers = "h",
            .layer = {.attention_norm = "input_layernorm",
                      .mlp_norm = "post_attention_layernorm",
                      .qkv = "self_attention.query_key_value",
                      .output = "self_attention.dense",
                      .up = "mlp.dense_h_to_4h",
                      .down = "mlp.dense_4h_to_h"},
            .qkv = QkvForm::grouped};
}

} // namespace

FamilyDescription bloom_family() {
    return {"bloom", {"BloomForCausalLM"}, read_bloom, {"transformer.", ""}, bloom_stems};
}

} // namespace entrodraft::model
