// Describes the model of a checkpoint's config.json in this project's terms: shapes and closed choices, not names.
//
// Every family has such a description; families/*.cpp translate into it. Old and new spellings are understood
// (torch_dtype or dtype; rope_theta and rope_scaling or rope_parameters). A field that would change the arithmetic and
// is not understood is refused by name, never ignored. Fields that transformers' class of the family does not read
// change nothing there, and nothing here.
#pragma once

#include "model/files/quantized.h"
#include "model/text/token_id.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::model {

enum class Activation { silu, gelu, gelu_tanh, relu };
enum class Norm { rms, layer };
// sinusoidal: a table like a learned one, computed. relative: scores gain a bias by distance (Raffel et al. 2020).
enum class Positions { rotary, learned, alibi, sinusoidal, relative };
// int4: groups of 64 inputs share a scale; float8: e4m3, on GPUs only.
enum class WeightType { float32, bfloat16, float16, int8, int4, float8 };

// The way in which attention and MLP of a layer join the residual stream x.
enum class Block {
    pre_norm,   // x += attention(norm x); x += mlp(norm x)
    post_norm,  // x = norm(x + attention(x)); x = norm(x + mlp(x))
    sandwich,   // x += norm(attention(norm x)); x += norm(mlp(norm x))
    inner_norm, // x += norm(attention(x)); x += norm(mlp(x))
    parallel,   // x += attention(norm x) + mlp(norm x), with one all-reduce; two norms or one
};

// The part of queries and keys that RMSNorm norms: each head, or all heads of a row together.
enum class QueryKeyNorm { none, head, row };

// The way in which a draft head makes the residual stream x. It has features f, which are hidden states of its target
// or a state of its own, and the embedding e of the row's token.
enum class Fusion {
    none,      // x = e: a model by itself
    features,  // x = f
    linear,    // x = W [e; f]
    attention, // x = f, and the first layer's queries, keys and values are made of [norm e; norm f]
    sum,       // x = activation(norm(f + e))
    lstm,      // x = the output of an LSTM whose gates are f + e, norms before its activations
    cells,     // x = the output of stacked LSTM cells, the first over [e; f], each following a state of zeros
    concat,    // x = U [f; e] + activation(W [f; e])
    context,   // x = e; rows of f come before, for which layers have only keys and values, all made of norm f
};

// The fusion of a draft head; model/heads/head.h lists the heads.
struct FusionConfig {
    Fusion kind = Fusion::none;
    int n_features = 1;             // hidden states of the target that a row has
    int feature_size = 0;           // size of each: the target's hidden_size
    int cell_size = 0;              // lstm: number of its cell's values, after the features; 0: the cell is 0
    int n_cells = 0;                // cells
    bool projects_features = false; // projects the target's features to projected_size()
    bool has_bias = false;          // linear, concat, cells
    // linear, attention, context: e and f are normed first
    bool norms_embedding = false, norms_state = false;
    bool features_first = false;      // linear: W [f; e]
    bool normed_residual = false;     // attention, context: x = norm f
    bool first_attention_norm = true; // linear: whether the first layer norms its attention's input
    int n_residual_blocks = 0;        // features, concat: number of times that x += activation(W x + b) follows
    bool residual_bias = true;        // whether these have b
    int residual_size = 0;            // if not 0: x += V activation(W x + b) + c, with this inner size
    // Norms of the features: the first over the first feature_norm_size numbers, and so on. The rest is not normed.
    int n_feature_norms = 0;
    int feature_norm_size = 0;
    Norm feature_norm = Norm::rms;
    // If not 0, the features are then divided by their root mean square and multiplied by this.
    float features_scale = 0;
    static constexpr float kScaleEpsilon = 1e-6f; // added to the mean square
    float feature_norm_epsilon = 1e-5f, feature_norm_offset = 0;

    int feature_numbers() const { return n_features * feature_size; }
    int width() const { return feature_numbers() + cell_size; } // number of values of a row
    int projected_size(int hidden_size) const {
        return kind == Fusion::lstm ? 4 * hidden_size : kind == Fusion::cells ? 3 * hidden_size : hidden_size;
    }
    int joined_size(int hidden_size) const { return kind == Fusion::concat ? width() + hidden_size : 2 * hidden_size; }
};

std::string to_string(WeightType type); // "float32", "bfloat16", "float16", "int8", "int4", "float8"
bool is_scaled(WeightType type);        // int8, int4, float8: numbers of 8 or 4 bits, with scales
std::size_t bytes_of(WeightType type);  // of a weight in memory, but for int4; int8's scales not counted
// Returns the type of activations and cache where it follows the weights' type (GPUs). For 8-bit weights it is the type
// that the checkpoint was made for, or the one with the wider range.
WeightType activation_type(WeightType weights, WeightType stored);

// by_pair: LongRoPE's short factors, and the factors that GGUF files have for llama3.
enum class RopeScaling { none, linear, dynamic, llama3, yarn, by_pair };

// Rotary positions, with the ways to stretch them (transformers' modeling_rope_utils).
struct Rope {
    double theta = 10000.0;
    int dims = 0; // the first of a head, which are turned; even
    RopeScaling scaling = RopeScaling::none;
    double factor = 1;
    double original_positions = 0;        // llama3, yarn; dynamic: positions that need no stretching
    double low_frequency_factor = 1;      // llama3
    double high_frequency_factor = 4;     // llama3
    double beta_fast = 32, beta_slow = 1; // yarn
    bool truncate = true;                 // yarn
    double attention_factor = 1;          // of cosines and sines
    double score_factor = 1;              // yarn, of latent attention: of scores
    std::vector<float> pair_factors = {}; // by_pair, [dims / 2]: each frequency is divided by its own
    // LongRoPE's factors for contexts beyond original_positions, up to long_positions; see stretch_context().
    std::vector<float> long_pair_factors = {};
    int long_positions = 0;
    bool interleaved = false; // numbers 2 i and 2 i + 1 of a head are a pair; else i and i + dims / 2
    friend bool operator==(const Rope&, const Rope&) = default;
};

// The angles by which a layer rotates: ModelConfig::rope's, local_rope's, or none.
enum class LayerRope { common, local, none };

// A router's scores of a row's experts come from a softmax over all of them, or from a sigmoid of each.
enum class RouterScore { softmax, sigmoid };

// Experts are MLPs. Each row goes through a few of them, and their results are added with the row's weights.
struct ExpertsConfig {
    int n_experts = 0; // of a layer; 0: there are none
    int n_chosen = 0;  // by a row
    int intermediate_size = 0;
    RouterScore score = RouterScore::softmax;
    // Only experts of the n_chosen_groups best groups are chosen. A group's value is the sum of its n_group_best best.
    int n_groups = 1, n_chosen_groups = 1, n_group_best = 1;
    bool normalizes = false;            // weights are the chosen experts' scores divided by their sum; else the scores
    float scale = 1;                    // of the weights
    int shared_size = 0;                // intermediate_size of the shared expert of all rows; 0: there is none
    bool gated_shared = false;          // its output is multiplied by the sigmoid of a product of the row
    std::vector<int> dense_layers = {}; // layers that have an MLP instead, in order
    bool has_router_bias = false, has_biases = false; // the second: of all matrices of experts
    bool alternates = false; // rows of a tensor of gate and up: they alternate; else all of gate, then all of up
    // If the limit is not 0, an expert computes (u + 1) g sigmoid(slope g) from gate g, at most limit, and up u, within
    // +-limit.
    float swiglu_limit = 0, swiglu_slope = 1;
};

// Latent attention (DeepSeek-V2): keys and values of all heads are made of one vector. The cache has only this vector
// and one rotated key.
struct LatentConfig {
    int rank = 0;       // of that vector; 0: another kind of attention
    int query_rank = 0; // of the vector that queries are made of; 0: they are made of the row
    int plain_dim = 0, rotated_dim = 0, value_dim = 0; // of a head: its plain part, its rotated part, and its value
    static constexpr int kUnit = 16;                   // rank and value_dim are multiples of it
    static constexpr float kNormEpsilon = 1e-6f;       // of both vectors' norms
};

// Gated DeltaNet (Yang et al. 2024), in the place of attention. Each value head has a state [key_dim][value_dim], which
// every row changes. Rows read earlier rows only through it and through a short convolution's inputs.
struct LinearAttentionConfig {
    std::vector<int> layers = {}; // layers that have it, in order; empty: none
    int n_key_heads = 0, n_value_heads = 0;
    int key_dim = 0, value_dim = 0; // of a head
    int n_convolved = 0; // rows, the row itself among them, of which a row's queries, keys and values are made
    static constexpr int kUnit = 16; // value_dim is a multiple of it
    static constexpr int kMaxConvolved = 16;
    static constexpr float kLengthEpsilon = 1e-6f; // added to the square of a key's length

    int group() const { return n_key_heads > 0 ? n_value_heads / n_key_heads : 0; } // value heads of a key head
    int convolved_size() const { return 2 * key_dim + group() * value_dim; }        // of a key head: query, key, values
};

// Buckets of distances between a row and a key, each with a bias for each head.
struct RelativePositions {
    int n_buckets = 32;
    int max_distance = 128; // distances from here on share a bucket
};

// The values that an encoder has of its own; all others are as in the decoder. See encoder_of().
struct EncoderConfig {
    int n_layers = 0; // 0: there is no encoder
    int n_heads = 0;
    int head_dim = 0;
    int intermediate_size = 0;
    int vocab_size = 0;
    int max_positions = 0;      // of a source
    bool own_embedding = false; // else the decoder's embedding serves both
};

struct ModelConfig {
    std::string family = "llama"; // config.json's "model_type"
    int vocab_size = 0;           // rows of the embedding and of the head
    int hidden_size = 0;
    int embedding_size = 0; // width of embedding and head: hidden_size, or less with projections between
    int intermediate_size = 0;
    int n_layers = 0;
    int n_heads = 0;
    int n_kv_heads = 0;
    int head_dim = 0;
    int max_positions = 0;

    Block block = Block::pre_norm;
    bool shared_norm = false; // parallel: the MLP reads the attention's norm
    bool final_norm = true;
    Norm norm = Norm::rms;
    bool norm_bias = true; // of Norm::layer
    float norm_epsilon = 1e-5f;
    float norm_offset = 0; // added to the stored weights of every norm
    Activation activation = Activation::silu;
    bool gated_mlp = true;
    bool qkv_bias = false, output_bias = false, mlp_bias = false, head_bias = false;
    QueryKeyNorm query_key_norm = QueryKeyNorm::none;
    ExpertsConfig experts;
    LatentConfig latent;
    LinearAttentionConfig linear;
    bool gated_attention = false; // attention's output is multiplied by the sigmoid of a product of the row
    bool has_sinks = false;       // each head's softmax has one more score, a weight of the layer, without a value

    Positions positions = Positions::rotary;
    Rope rope, local_rope;
    std::vector<LayerRope> layer_ropes; // empty: LayerRope::common everywhere
    RelativePositions relative;
    bool scaled_alibi = false;   // ALiBi's biases are rounded to bfloat16, and scaled as scores are (Falcon)
    int position_offset = 0;     // learned: row of the table that position 0 has
    bool embedding_norm = false; // over token and position, before the first layer
    float embedding_scale = 1;
    float output_scale = 1;       // of the final norm's output
    float residual_scale = 1;     // hidden states times this are those of the family's own arithmetic
    float attention_scale = 0;    // of query times key
    float attention_soft_cap = 0; // 0: none
    float logit_soft_cap = 0;     // 0: none
    std::vector<int>
        windows; // by layer: how many positions a row sees, itself included; 0: all. Empty: all, everywhere

    EncoderConfig encoder;
    bool is_encoder = false; // encoder_of() a model: rows see all of their source, and there are no logits
    FusionConfig fusion;
    // The output tokens of a draft or draft head that knows fewer tokens than it reads; empty: all.
    std::vector<TokenId> output_tokens;
    bool picks_outputs = false; // they are rows of a matrix of all tokens, in rising order
    bool tied_embeddings = false;
    WeightType stored_type = WeightType::float32; // type of the file by the config
    std::optional<Quantization> quantization;     // of matrices of the layers, all or some
    std::int64_t bos_token_id = -1;               // -1: none
    std::vector<std::int64_t> eos_token_ids;
    // For an encoder-decoder model: the first tokens of its decoder's text, unless a request gives others.
    std::vector<std::int64_t> decoder_start_ids;

    bool is_latent() const { return latent.rank > 0; }
    // Returns true for a layer whose MLP is experts.
    bool has_experts(int layer) const {
        return experts.n_experts > 0 && !std::ranges::binary_search(experts.dense_layers, layer);
    }
    int n_expert_layers() const {
        return experts.n_experts > 0 ? n_layers - static_cast<int>(experts.dense_layers.size()) : 0;
    }
    bool is_linear(int layer) const { return std::ranges::binary_search(linear.layers, layer); }
    int n_linear_layers() const { return static_cast<int>(linear.layers.size()); }
    int n_attention_layers() const { return n_layers - n_linear_layers(); }
    // Returns the number of layers of the same kind before this one: the layer's place in the cache.
    int cache_layer(int layer) const {
        const auto before = static_cast<int>(std::ranges::lower_bound(linear.layers, layer) - linear.layers.begin());
        return is_linear(layer) ? before : layer - before;
    }
    // The size of a head's query and cached key; the size of a cached value; the size of a head's part of the output
    // projection's input.
    int key_dim() const { return is_latent() ? latent.rank + latent.rotated_dim : head_dim; }
    int value_dim() const { return is_latent() ? latent.rank : head_dim; }
    int attended_dim() const { return is_latent() ? latent.value_dim : head_dim; }
    LayerRope layer_rope(int layer) const { return layer_ropes.empty() ? LayerRope::common : layer_ropes[layer]; }
    bool has_encoder() const { return encoder.n_layers > 0; }
    bool has_embedding() const { return fusion.kind != Fusion::features && (!is_encoder || encoder.own_embedding); }
    bool has_head() const { return !is_encoder && (!tied_embeddings || picks_outputs); } // a matrix of its own
    bool is_draft_head() const { return fusion.kind != Fusion::none; }
    int n_outputs() const { return output_tokens.empty() ? vocab_size : static_cast<int>(output_tokens.size()); }
    int window(int layer) const { return windows.empty() ? 0 : windows[layer]; }
};

// Returns the encoder of a model that has one, as a model of its own: is_encoder. Pure.
ModelConfig encoder_of(const ModelConfig& config);

// If a model with LongRoPE is to take more positions than the original ones, gives it such a context. All texts,
// whatever their length, are then rotated by the long factors. Changes nothing else. Pure.
void stretch_context(ModelConfig& config, int positions);

// Returns the model of the first n_layers layers, followed by the final norm and the head. Pure.
ModelConfig first_layers(ModelConfig config, int n_layers);

} // namespace entrodraft::model
