// OPT, all sizes: LayerNorm, ReLU, learned positions from row 2 on; 350m with norms behind each half and projections
// around the layers.
#include "model/families/families.h"

#include <fmt/format.h>

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

ModelNames opt_names(const ModelConfig& config, const std::string& prefix) {
    ModelNames names;
    names.embedding = weight_only(prefix + "embed_tokens");
    names.positions = weight_only(prefix + "embed_positions");
    if (config.embedding_size != config.hidden_size) {
        names.project_in = weight_only(prefix + "project_in");
        names.project_out = weight_only(prefix + "project_out");
    }
    if (config.final_norm) names.final_norm = with_bias(prefix + "final_layer_norm");
    names.head = weight_only("lm_head");
    names.layer = [config, prefix](int index) {
        const std::string layer = fmt::format("{}layers.{}.", prefix, index);
        LayerNames of_layer;
        of_layer.attention_norm = with_bias(layer + "self_attn_layer_norm");
        of_layer.mlp_norm = with_bias(layer + "final_layer_norm");
        of_layer.query = with_bias(layer + "self_attn.q_proj", config.qkv_bias);
        of_layer.key = with_bias(layer + "self_attn.k_proj", config.qkv_bias);
        of_layer.value = with_bias(layer + "self_attn.v_proj", config.qkv_bias);
        of_layer.output = with_bias(layer + "self_attn.out_proj", config.output_bias);
        of_layer.up = with_bias(layer + "fc1", config.mlp_bias);
        of_layer.down = with_bias(layer + "fc2", config.mlp_bias);
        return of_layer;
    };
    names.ignores = [](std::string_view) { return false; };
    return names;
}

} // namespace

FamilyDescription opt_family() {
    return {Family::opt, "opt", {"OPTForCausalLM"}, read_opt, {"model.decoder.", "decoder.", ""}, opt_names};
}

} // namespace entrodraft::model
