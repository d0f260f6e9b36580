// The names a checkpoint's tensors go by, whatever the family, and the check that they are all there in the shapes that
// the config calls for. Reads headers only, but for untie_stored_head().
// Called by the decoder, and by launch before it loads.
#pragma once

#include "model/families/config.h"
#include "model/files/checkpoint.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

// A linear layer's or a norm's tensors; an empty name: the family has no such thing.
struct TensorNames {
    std::string weight;
    std::string bias;
    std::string second_bias = {}; // added to it
};

// How the rows of a fused query-key-value matrix lie.
enum class QkvForm {
    separate, // three matrices
    stacked,  // all query heads, all key heads, all value heads
    grouped,  // by key head: its query heads, its key, its value
};

// What a layer consists of. Matrices are stored [out, in], or [in, out] where ModelNames::transposed; norms are
// [hidden_size].
template <typename T> struct LayerParts {
    T attention_norm = {};                            // before the attention, or after it (post_norm)
    T mlp_norm = {};                                  // before the MLP, or after it (post_norm); empty where shared
    T after_attention_norm = {}, after_mlp_norm = {}; // sandwich
    T query = {};                                     // [n_heads * head_dim, attention_input_size()], twice the rows
                                                      // of gated attention: each head's queries, then its gate
    T key = {}, value = {};                           // [n_kv_heads * head_dim, attention_input_size()]
    T qkv = {};                       // [(n_heads + 2 n_kv_heads) * head_dim, hidden_size], instead of the three
    T query_norm = {}, key_norm = {}; // [head_dim], or of all heads
    T sinks = {};                     // [n_heads]: the whole name
    T output = {};                    // [hidden_size, n_heads * attended_dim()]
    T gate = {};                      // [intermediate_size, hidden_size]
    T up = {};                        // [intermediate_size, hidden_size]
    T gate_up = {};                   // [2 * intermediate_size, hidden_size], gate first, instead of the two
    T down = {};                      // [hidden_size, intermediate_size]
    // Attention to a source, of the decoder of an encoder-decoder model; shapes as above
    T cross_norm = {}, cross_query = {}, cross_key = {}, cross_value = {}, cross_output = {};
    // Of latent attention, beside `query`, whose inputs are the vector that query_down makes, where there is one
    T query_down = {}, query_down_norm = {};         // [query_rank, hidden_size]
    T key_value_down = {}, key_value_down_norm = {}; // [rank + rotated_dim, hidden_size]; the norm is of `rank`
    T key_value_up = {};                             // [n_heads * (plain_dim + value_dim), rank], head after head
    // Of linear attention, in the place of query, key, value and output: in groups by key head, see LayerShapes
    T linear_in = {};    // [n_key_heads * (convolved_size() + group() * value_dim), ...]
    T linear_gates = {}; // [2 * n_value_heads, hidden_size]
    // Instead of the two: all queries, all keys, all values; the values' gates; and a number of each value head
    T linear_qkv = {}, linear_value_gates = {}, linear_steps = {}, linear_decays = {};
    T linear_convolution = {};                   // [n_key_heads * convolved_size(), 1, n_convolved], queries first
    T linear_decay = {}, linear_decay_bias = {}; // [n_value_heads]: whole names
    T linear_norm = {};                          // [value_dim], its weights as they are
    T linear_output = {};                        // [hidden_size, n_value_heads * value_dim]
    // Of a layer with experts, in the place of gate, up and down
    T router = {};                                        // [n_experts, hidden_size]
    T router_correction = {};                             // [n_experts]: the whole name
    T shared_gate = {}, shared_up = {}, shared_down = {}; // as gate, up and down, of shared_size
    T shared_scale = {};                                  // [1, hidden_size]
    T expert_gate_up = {}, expert_down = {};              // whole names of [n_experts, ...] of all experts together,
                                                          // biases too, else each has an ExpertParts
};
using LayerNames = LayerParts<TensorNames>;

// Of one expert, whose matrices are tensors of their own; shapes as above.
template <typename T> struct ExpertParts {
    T gate = {}, up = {}, down = {};
};
using ExpertNames = ExpertParts<TensorNames>;

// Of a draft head (ModelConfig::fusion).
struct FusionNames {
    std::vector<TensorNames> feature_norms; // [feature_norm_size] each
    // [hidden_size, n_features * feature_size]; of an LSTM four: forget, input, output, cell
    std::vector<TensorNames> feature_projections;
    TensorNames linear, skip;               // [hidden_size, FusionConfig::joined_size()]: W and U
    TensorNames embedding_norm, state_norm; // [hidden_size], of e and f
    TensorNames sum_norm, cell_norm;        // [hidden_size], with a bias: of the sum or the cell, of the cell's gate
    std::vector<TensorNames> cells; // [4 hidden_size, its inputs]: input, forget and output gate around the candidate
    std::vector<TensorNames> residual_blocks;  // [hidden_size or residual_size, hidden_size]
    std::vector<TensorNames> residual_outputs; // [hidden_size, residual_size], or none
};

struct ModelNames {
    TensorNames embedding; // [vocab_size, embedding_size]
    TensorNames positions; // [max_positions + position_offset, hidden_size], of learned ones, and of computed ones that
                           // are stored
    TensorNames embedding_norm;
    TensorNames relative_bias; // [n_buckets, n_heads]
    TensorNames project_in;    // [hidden_size, embedding_size]
    TensorNames project_out;   // [embedding_size, hidden_size]
    TensorNames final_norm;
    FusionNames fusion;
    TensorNames head; // [n_outputs, embedding_size]; the embedding's own name where the two are tied. The bias
                      // [n_outputs] or [1, n_outputs]
    QkvForm qkv = QkvForm::separate;
    bool transposed = false;         // matrices of the layers
    bool transposed_experts = false; // of all experts together: [n_experts, in, out]
    std::function<LayerNames(int)> layer;
    std::function<ExpertNames(int layer, int expert)> expert;
    std::function<bool(std::string_view)> ignores; // tensors that a file may hold and nothing reads
};

// With the prefix that the checkpoint's names have, or lack. Local.
ModelNames names_of(const ModelConfig& config, const Checkpoint& checkpoint);

// Where config ties head and embedding but the checkpoint stores both, with different values, unties them, as
// transformers does from release 5, and returns true. Reads both tensors. Loading a decoder does this; who reckons with
// a config before that calls it first. Local.
bool untie_stored_head(ModelConfig& config, const Checkpoint& checkpoint);

} // namespace entrodraft::model
