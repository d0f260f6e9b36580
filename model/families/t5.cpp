// T5, T5 v1.1, Flan-T5 and mT5: an encoder and a decoder of RMSNorm layers, relative positions, ReLU or a gated MLP.
// They have no biases.
#include "model/families/families.h"

#include <cmath>

namespace entrodraft::model {
namespace {

// The model itself has no limit of positions, but caches need one.
constexpr int kDefaultPositions = 512;

// Reads "relu", or "gated-" before the gate's activation; "gated-gelu" is the tanh form.
void read_feed_forward(const Fields& fields, bool is_mt5, ModelConfig& config) {
    std::string kind = fields.string("feed_forward_proj", is_mt5 ? "gated-gelu" : "relu");
    config.gated_mlp = kind.starts_with("gated-");
    if (config.gated_mlp) kind.erase(0, std::string("gated-").size());
    if (config.gated_mlp && kind == "gelu") kind = "gelu_new";
    const nlohmann::json activation = {{"feed_forward_proj", kind}};
    config.activation = read_activation(Fields(activation, fields.file()), "feed_forward_proj", kind);
}

void read_t5(const Fields& fields, ModelConfig& config) {
    const bool is_mt5 = fields.string("model_type", "t5") == "mt5";
    if (!fields.boolean("is_encoder_decoder", true)) fields.refuse("field 'is_encoder_decoder' is false");
    config.vocab_size = fields.size("vocab_size", is_mt5 ? 250112 : 32128);
    config.hidden_size = fields.size("d_model", 512);
    config.head_dim = fields.size("d_kv", 64);
    config.intermediate_size = fields.size("d_ff", is_mt5 ? 1024 : 2048);
    const int n_layers = fields.size("num_layers", is_mt5 ? 8 : 6);
    config.n_layers = fields.size("num_decoder_layers", n_layers);
    config.n_heads = config.n_kv_heads = fields.size("num_heads", is_mt5 ? 6 : 8);
    config.max_positions = fields.size("n_positions", kDefaultPositions);
    config.encoder = {
        n_layers, config.n_heads, config.head_dim, config.intermediate_size, config.vocab_size, config.max_positions,
        false};
    config.positions = Positions::relative;
    config.relative.n_buckets = fields.size("relative_attention_num_buckets", 32);
    config.relative.max_distance = fields.size("relative_attention_max_distance", 128);
    if (config.relative.n_buckets < 4 || config.relative.n_buckets % 2 != 0 ||
        config.relative.max_distance <= config.relative.n_buckets / 2)
        fields.refuse("'relative_attention_num_buckets' must be even, at least 4, and less than twice "
                      "'relative_attention_max_distance'");
    config.norm = Norm::rms;
    config.norm_epsilon = read_epsilon(fields, "layer_norm_epsilon", 1e-6);
    config.attention_scale = 1;
    read_feed_forward(fields, is_mt5, config);
    // Files of transformers 5 say whether outputs are scaled. Older files scale those of tied T5 models.
    const bool is_tied = fields.boolean("tie_word_embeddings", !is_mt5);
    const bool scales = fields.boolean("scale_decoder_outputs", is_tied);
    config.tied_embeddings = is_tied;
    if (scales && !is_mt5) config.output_scale = 1.0f / std::sqrt(static_cast<float>(config.hidden_size));
    read_token_ids(fields, -1, 1, config);
    config.decoder_start_ids = {0};
    read_decoder_start(fields, config);
}

TensorStems t5_stems(const ModelConfig& config) {
    TensorStems stems = {
        .embedding = "shared",
        .final_norm = "decoder.final_layer_norm",
        .relative_bias = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        .embedding_aliases = {"decoder.embed_tokens", "encoder.embed_tokens"},
        .layers = "decoder.block",
        .layer = {.attention_norm = "layer.0.layer_norm",
                  .mlp_norm = "layer.2.layer_norm",
                  .query = "layer.0.SelfAttention.q",
                  .key = "layer.0.SelfAttention.k",
                  .value = "layer.0.SelfAttention.v",
                  .output = "layer.0.SelfAttention.o",
                  .up = "layer.2.DenseReluDense.wi",
                  .down = "layer.2.DenseReluDense.wo",
                  .cross_norm = "layer.1.layer_norm",
                  .cross_query = "layer.1.EncDecAttention.q",
                  .cross_key = "layer.1.EncDecAttention.k",
                  .cross_value = "layer.1.EncDecAttention.v",
                  .cross_output = "layer.1.EncDecAttention.o"},
        // The same matrix again, and a leftover of old files.
        .ignored = {"shared.weight", "embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight"}};
    LayerStems& layer = stems.layer;
    if (config.is_encoder) {
        stems.final_norm = "encoder.final_layer_norm";
        stems.relative_bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias";
        stems.layers = "encoder.block";
        layer.mlp_norm = "layer.1.layer_norm";
        layer.up = "layer.1.DenseReluDense.wi";
        layer.down = "layer.1.DenseReluDense.wo";
        layer.cross_norm = layer.cross_query = layer.cross_key = layer.cross_value = layer.cross_output = {};
    }
    if (config.gated_mlp) {
        layer.gate = config.is_encoder ? "layer.1.DenseReluDense.wi_0" : "layer.2.DenseReluDense.wi_0";
        layer.up = config.is_encoder ? "layer.1.DenseReluDense.wi_1" : "layer.2.DenseReluDense.wi_1";
    }
    return stems;
}

} // namespace

FamilyDescription t5_family() {
    return {"t5",     {"T5ForConditionalGeneration", "MT5ForConditionalGeneration", "T5WithLMHeadModel"},
            read_t5,  {""},
            t5_stems, {"mt5"}};
}

} // namespace entrodraft::model
