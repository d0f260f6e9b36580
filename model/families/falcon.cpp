// Falcon in its three forms: 7B (one key head, one norm, parallel), 40B and 180B (grouped heads, two norms, parallel),
// and rw (one key head per query head, ALiBi, sequential, biases).
#include "model/families/families.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

// Early files use other names for some fields.
int read_size(const Fields& fields, const char* name, const char* early_name, int default_value) {
    return fields.size(name, fields.size(early_name, default_value));
}

void read_layout(const Fields& fields, ModelConfig& config) {
    const bool is_new = fields.boolean("new_decoder_architecture", false);
    const bool one_key_head = fields.boolean("multi_query", true);
    const bool is_parallel = fields.boolean("parallel_attn", true);
    const int n_norms = fields.size("num_ln_in_parallel_attn", is_new ? 2 : 1);
    const int kv_heads = read_size(fields, "num_kv_heads", "n_head_kv", config.n_heads);
    if (is_new && !is_parallel) fields.refuse("'new_decoder_architecture' without 'parallel_attn' is not supported");
    if (n_norms > 2 || (n_norms == 2 && !is_new))
        fields.refuse(fmt::format(
            "field 'num_ln_in_parallel_attn' is {}; supported: 1, and 2 with 'new_decoder_architecture'", n_norms));
    config.n_kv_heads = is_new ? kv_heads : one_key_head ? 1 : config.n_heads;
    if (!is_new && !one_key_head && kv_heads != config.n_heads)
        fields.refuse("'num_kv_heads' other than the heads needs 'new_decoder_architecture'");
    if (config.n_heads % config.n_kv_heads != 0)
        fields.refuse("'num_attention_heads' is not a multiple of 'num_kv_heads'");
    config.block = is_parallel ? Block::parallel : Block::pre_norm;
    config.shared_norm = is_parallel && n_norms == 1;
}

void read_falcon(const Fields& fields, ModelConfig& config) {
    config.vocab_size = fields.size("vocab_size", 65024);
    config.hidden_size = read_size(fields, "hidden_size", "n_embed", 4544);
    config.n_layers = read_size(fields, "num_hidden_layers", "n_layer", 32);
    config.n_heads = read_size(fields, "num_attention_heads", "n_head", 71);
    config.max_positions = fields.size("max_position_embeddings", 2048);
    divide_into_heads(fields, config, "hidden_size", "num_attention_heads");
    if (4LL * config.hidden_size > kMaxSize) fields.refuse("'hidden_size' is too large");
    config.intermediate_size = fields.size("ffn_hidden_size", 4 * config.hidden_size);
    read_layout(fields, config);
    config.norm = Norm::layer;
    config.norm_epsilon = read_epsilon(fields, "layer_norm_epsilon", 1e-5);
    config.activation = read_activation(fields, "activation", "gelu");
    config.gated_mlp = false;
    config.qkv_bias = config.output_bias = config.mlp_bias = fields.boolean("bias", false);
    config.positions = fields.boolean("alibi", false) ? Positions::alibi : Positions::rotary;
    config.scaled_alibi = true;
    if (config.positions == Positions::rotary) config.rope = read_rope(fields, {}, config);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, 11, 11, config);
}

TensorStems falcon_stems(const ModelConfig& config) {
    TensorStems stems = {.embedding = "word_embeddings",
                         .final_norm = "ln_f",
                         .layers = "h",
                         .layer = {.attention_norm = "input_layernorm",
                                   .qkv = "self_attention.query_key_value",
                                   .output = "self_attention.dense",
                                   .up = "mlp.dense_h_to_4h",
                                   .down = "mlp.dense_4h_to_h"},
                         // A single key head's group is all query heads, then the key, then the value.
                         .qkv = QkvForm::grouped,
                         .ignored = {"inv_freq"}};
    if (config.block == Block::pre_norm) stems.layer.mlp_norm = "post_attention_layernorm";
    if (config.block == Block::parallel && !config.shared_norm) {
        stems.layer.attention_norm = "ln_attn";
        stems.layer.mlp_norm = "ln_mlp";
    }
    return stems;
}

} // namespace

FamilyDescription falcon_family() {
    return {"falcon", {"FalconForCausalLM", "RWForCausalLM"}, read_falcon, {"transformer.", ""}, falcon_stems};
}

} // namespace entrodraft::model
