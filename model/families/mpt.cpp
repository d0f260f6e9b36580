// MPT: ALiBi, LayerNorm without biases, queries, keys and values in one matrix.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_mpt(const Fields& fields, ModelConfig& config) {
    config.vocab_size = fields.size("vocab_size", 50368);
    config.hidden_size = fields.size("d_model", 2048);
    config.n_layers = fields.size("n_layers", 24);
    config.n_heads = config.n_kv_heads = fields.size("n_heads", 16);
    config.max_positions = fields.size("max_seq_len", 2048);
    divide_into_heads(fields, config, "d_model", "n_heads");
    if (4LL * config.hidden_size > kMaxSize) fields.refuse("'d_model' is too large");
    config.intermediate_size = 4 * config.hidden_size; // whatever 'expansion_ratio' says, as in transformers
    config.norm = Norm::layer;
    config.norm_bias = !fields.boolean("no_bias", true);
    if (config.norm_bias) fields.refuse("'no_bias' is false; supported: true");
    config.norm_epsilon = read_epsilon(fields, "layer_norm_epsilon", 1e-5);
    config.activation = Activation::gelu;
    config.gated_mlp = false;
    config.positions = Positions::alibi;
    if (const nlohmann::json* attention = fields.find("attn_config")) {
        if (!attention->is_object()) fields.refuse("field 'attn_config' is not an object");
        const Fields of(*attention, fields.file() + ": attn_config");
        if (!of.boolean("alibi", true)) of.refuse("'alibi' is false; supported: true");
        if (of.size("alibi_bias_max", 8) != 8) of.refuse("'alibi_bias_max' other than 8 is not supported");
        if (of.boolean("qk_ln", false) || of.boolean("prefix_lm", false) || of.find("clip_qkv") != nullptr)
            of.refuse("'qk_ln', 'prefix_lm' and 'clip_qkv' are not supported");
        config.attention_scale = static_cast<float>(of.positive("softmax_scale", 0)); // 0: the usual scale
    }
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, -1, -1, config);
}

TensorStems mpt_stems(const ModelConfig&) {
    return {.embedding = "wte",
            .final_norm = "norm_f",
            .layers = "blocks",
            .layer = {.attention_norm = "norm_1",
                      .mlp_norm = "norm_2",
                      .qkv = "attn.Wqkv",
                      .output = "attn.out_proj",
                      .up = "ffn.up_proj",
                      .down = "ffn.down_proj"},
            .qkv = QkvForm::stacked};
}

} // namespace

FamilyDescription mpt_family() {
    return {"mpt", {"MptForCausalLM", "MPTForCausalLM"}, read_mpt, {"transformer.", ""}, mpt_stems};
}

} // namespace entrodraft::model
