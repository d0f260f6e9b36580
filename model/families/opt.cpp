// OPT, all sizes: LayerNorm, ReLU, learned positions from row 2 on. 350m has norms after each half of a layer and
// projections around the layers.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_opt(const Fields& fields, ModelConfig& config) {
    config.vocab_size = fields.size("vocab_size", 50272);
    config.hidden_size = fields.size("hidden_size", 768);
    config.embedding_size = fields.size("word_embed_proj_dim", config.hidden_size);
    config.n_layers = fields.size("num_hidden_layers", 12);
    config.n_heads = config.n_kv_heads = fields.size("num_attention_heads", 12);
    config.intermediate_size = fields.size("ffn_dim", 3072);
    config.max_positions = fields.size("max_position_embeddings", 2048);
    config.position_offset = 2;
    config.positions = Positions::learned;
    divide_into_heads(fields, config, "hidden_size", "num_attention_heads");
    const bool norms_before = fields.boolean("do_layer_norm_before", true);
    config.block = norms_before ? Block::pre_norm : Block::post_norm;
    config.final_norm = norms_before && !fields.boolean("_remove_final_layer_norm", false);
    config.norm = Norm::layer;
    config.norm_epsilon = 1e-5f;
    if (!fields.boolean("layer_norm_elementwise_affine", true))
        fields.refuse("field 'layer_norm_elementwise_affine' is false, which is not supported");
    config.activation = read_activation(fields, "activation_function", "relu");
    config.gated_mlp = false;
    config.qkv_bias = config.output_bias = config.mlp_bias = fields.boolean("enable_bias", true);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, 2, 2, config);
}

TensorStems opt_stems(const ModelConfig& config) {
    TensorStems stems = {.embedding = "embed_tokens",
                         .positions = "embed_positions",
                         .layer = {.attention_norm = "self_attn_layer_norm",
                                   .mlp_norm = "final_layer_norm",
                                   .query = "self_attn.q_proj",
                                   .key = "self_attn.k_proj",
                                   .value = "self_attn.v_proj",
                                   .output = "self_attn.out_proj",
                                   .up = "fc1",
                                   .down = "fc2"}};
    if (config.final_norm) stems.final_norm = "final_layer_norm";
    if (config.embedding_size != config.hidden_size) {
        stems.project_in = "project_in";
        stems.project_out = "project_out";
    }
    return stems;
}

} // namespace

FamilyDescription opt_family() {
    return {"opt", {"OPTForCausalLM"}, read_opt, {"model.decoder.", "decoder.", ""}, opt_stems};
}

} // namespace entrodraft::model
