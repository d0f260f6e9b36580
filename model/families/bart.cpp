// BART: an encoder and a decoder with norms after each half of a layer, learned positions from row 2 on, a norm over
// the embedding, and GELU. It also has the parts that mBART, Pegasus and Marian share with BART.
#include "model/families/families.h"

#include <cmath>

namespace entrodraft::model {
namespace {

void read_bart(const Fields& fields, ModelConfig& config) {
    read_bart_like(fields, config);
    config.positions = Positions::learned;
    config.position_offset = 2;
    config.embedding_norm = true;
    if (config.decoder_start_ids.empty()) config.decoder_start_ids = {2};
}

} // namespace

void read_bart_like(const Fields& fields, ModelConfig& config) {
    if (!fields.boolean("is_encoder_decoder", true)) fields.refuse("field 'is_encoder_decoder' is false");
    config.vocab_size = fields.size("vocab_size", 50265);
    config.hidden_size = fields.size("d_model", 1024);
    config.n_layers = fields.size("decoder_layers", 12);
    config.n_heads = config.n_kv_heads = fields.size("decoder_attention_heads", 16);
    config.intermediate_size = fields.size("decoder_ffn_dim", 4096);
    config.max_positions = fields.size("max_position_embeddings", 1024);
    divide_into_heads(fields, config, "d_model", "decoder_attention_heads");
    ModelConfig encoder = config;
    encoder.n_heads = fields.size("encoder_attention_heads", 16);
    divide_into_heads(fields, encoder, "d_model", "encoder_attention_heads");
    config.encoder = {fields.size("encoder_layers", 12),
                      encoder.n_heads,
                      encoder.head_dim,
                      fields.size("encoder_ffn_dim", 4096),
                      config.vocab_size,
                      config.max_positions,
                      false};
    config.block = Block::post_norm;
    config.final_norm = false;
    config.norm = Norm::layer;
    config.activation = read_activation(fields, "activation_function", "gelu");
    config.gated_mlp = false;
    config.qkv_bias = config.output_bias = config.mlp_bias = config.head_bias = true;
    if (fields.boolean("scale_embedding", false))
        config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
    config.tied_embeddings = fields.boolean("tie_word_embeddings", true);
    read_token_ids(fields, 0, 2, config);
    read_decoder_start(fields, config);
}

TensorStems bart_stems(const ModelConfig& config) {
    TensorStems stems = {.embedding = "shared",
                         .positions = "decoder.embed_positions",
                         .embedding_norm = "decoder.layernorm_embedding",
                         .embedding_aliases = {"decoder.embed_tokens", "encoder.embed_tokens"},
                         .head_bias = "final_logits_bias",
                         .layers = "decoder.layers",
                         .layer = {.attention_norm = "self_attn_layer_norm",
                                   .mlp_norm = "final_layer_norm",
                                   .query = "self_attn.q_proj",
                                   .key = "self_attn.k_proj",
                                   .value = "self_attn.v_proj",
                                   .output = "self_attn.out_proj",
                                   .up = "fc1",
                                   .down = "fc2",
                                   .cross_norm = "encoder_attn_layer_norm",
                                   .cross_query = "encoder_attn.q_proj",
                                   .cross_key = "encoder_attn.k_proj",
                                   .cross_value = "encoder_attn.v_proj",
                                   .cross_output = "encoder_attn.out_proj"},
                         .ignored = {"encoder.version", "decoder.version", "shared.weight", "embed_tokens.weight"}};
    if (config.final_norm) stems.final_norm = "decoder.layer_norm";
    if (!config.is_encoder) return stems;
    LayerStems& layer = stems.layer;
    stems.positions = "encoder.embed_positions";
    stems.embedding_norm = "encoder.layernorm_embedding";
    stems.layers = "encoder.layers";
    if (config.final_norm) stems.final_norm = "encoder.layer_norm";
    layer.cross_norm = layer.cross_query = layer.cross_key = layer.cross_value = layer.cross_output = {};
    return stems;
}

FamilyDescription bart_family() {
    return {"bart", {"BartForConditionalGeneration"}, read_bart, {"model.", ""}, bart_stems};
}

} // namespace entrodraft::model
