// What one rank of a tensor-parallel group holds of a model: arithmetic on shapes, no weights, no ranks.
//
// The decoder cuts by it, inspect prints it.
#pragma once

#include "dist/shard.h"
#include "model/families/config.h"

#include <cstdint>

namespace entrodraft::model {

inline constexpr int kShardUnit = 16; // of an MLP's width: outputs that CPU kernels compute together (kernels::kLanes)

struct RankShard {
    dist::HeadShard heads;
    dist::Slice mlp;                             // of the MLP's width, in whole units of 16
    dist::Slice vocab;                           // of the token ids, in whole units of 64
    dist::Slice outputs;                         // of the logits: the same, but of a draft head that knows fewer tokens
    bool is_first = true;                        // carries the residual and the biases of what is summed over ranks
    dist::Slice expert = {}, shared_expert = {}; // of each expert's width, and of the shared one's: as `mlp`
    dist::Slice linear_keys = {};                // of linear attention's key heads, with their value heads
    dist::Slice experts = {};                    // of a layer's experts, those of which the rank has a part or all
    bool adds_expert_bias = true;                // carries the biases of these experts' outputs
    dist::Slice looked_up = {};                  // token ids whose rows of the embedding it holds: `vocab`, or all

    int n_query_heads() const { return static_cast<int>(heads.query_heads.size()); }
    int n_kv_heads() const { return static_cast<int>(heads.kv_heads.size()); }
};

// Throws std::invalid_argument that names the most ranks possible. Local.
RankShard shard_of(const ModelConfig& config, int rank, int ranks);

// An embedding of so many bytes is held whole by every GPU: to look up a row takes less time than a sum over ranks. The
// embedding of Llama 3's 8B is within the limit, that of its 70B is not.
inline constexpr std::int64_t kMaxWholeEmbedding = std::int64_t{1} << 30;

// Lets a GPU's rank hold the whole embedding where that takes so many bytes at most. Local.
void hold_small_embedding_whole(const ModelConfig& config, std::size_t bytes_of_number, std::int64_t max_bytes,
                                RankShard& shard);

// A matrix as a rank holds it; no outputs: the model has none.
struct MatrixShape {
    int outputs = 0;
    int inputs = 0;
    std::int64_t first_input = 0; // where they begin in a stored row, of a matrix whose inputs are sharded
};
struct LayerShapes {
    // Own query heads, then own key heads, then own value heads, then the gates of own query heads, if any; of latent
    // attention the vector of queries, or own query heads, then that of keys and values with the rotated key.
    MatrixShape qkv;
    MatrixShape output;
    MatrixShape gate;
    MatrixShape up;
    MatrixShape down;
    MatrixShape cross_query = {}, cross_key_value = {}, cross_output = {}; // of layers that attend to a source
    // Of latent attention: queries of their vector, and of each own head a query as keys are cached, and a value.
    MatrixShape query_up = {}, absorb = {}, expand = {};
    // Of linear attention, in the place of qkv and output. The first: of each own key head its query, key, values and
    // their gates; then of each the steps and the decays of its value heads.
    MatrixShape linear_in = {}, linear_output = {};
    // Of layers with experts, in the place of gate, up and down: the router with the shared expert's scale, each
    // expert's, and the shared one's.
    MatrixShape router = {};
    MatrixShape expert_gate = {}, expert_up = {}, expert_down = {};
    MatrixShape shared_gate = {}, shared_up = {}, shared_down = {};
};
struct ShardShapes {
    MatrixShape embedding; // rows of the tokens that the rank looks up; the head too where the two are tied
    MatrixShape project_in, project_out;
    LayerShapes layer;     // of every layer, but for
    MatrixShape first_qkv; // the first layer's, which a draft head may make of rows twice as wide
    MatrixShape feature_projection, fusion, skip, first_cell, cell, residual_block, residual_output; // of a draft head
    MatrixShape head;
    std::int64_t floats = 0;        // norms, biases and learned positions, kept in float32
    std::int64_t expert_floats = 0; // of them, those of one expert
};
// Of the rows that queries, keys and values of a layer are made of. Local.
int attention_input_size(const ModelConfig& config, int layer);
// Local.
ShardShapes shapes_of(const ModelConfig& config, const RankShard& shard);

// Parameters of a model of these shapes and of its encoder, tied embeddings counted once. Local.
std::int64_t parameter_count(const ModelConfig& config);
// Those of a text's token: without the experts that it does not go through. Local.
std::int64_t active_parameter_count(const ModelConfig& config);

} // namespace entrodraft::model
