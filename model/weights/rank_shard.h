// The part of a model that one rank of a tensor-parallel group has. It is arithmetic on shapes, without weights.
//
// The decoder cuts tensors by it, and inspect prints it.
#pragma once

#include "dist/layout/shard.h"
#include "model/families/config.h"

#include <cstdint>

namespace entrodraft::model {

inline constexpr int kShardUnit = 16; // of an MLP's width: outputs that CPU kernels compute together (kernels::kLanes)

struct RankShard {
    dist::HeadShard heads;
    dist::Slice mlp;                             // of the MLP's width, in whole units of 16
    dist::Slice vocab;                           // of the token ids, in whole units of 64
    dist::Slice outputs;                         // of the logits: `vocab`, except for a draft head of fewer tokens
    bool is_first = true;                        // carries the residual and the biases of sums over ranks
    dist::Slice expert = {}, shared_expert = {}; // of each expert's width, and of the shared expert's: like `mlp`
    dist::Slice linear_keys = {};                // of linear attention's key heads, with their value heads
    dist::Slice looked_up = {};                  // token ids whose rows of the embedding it holds: `vocab`, or all

    int n_query_heads() const { return static_cast<int>(heads.query_heads.size()); }
    int n_kv_heads() const { return static_cast<int>(heads.kv_heads.size()); }
};

// Throws std::invalid_argument that names the largest number of ranks.
RankShard shard_of(const ModelConfig& config, int rank, int ranks);

// Every GPU holds an embedding of up to this size whole: looking up a row takes less time than a sum over ranks. Llama
// 3's 8B is within the limit, its 70B is not.
inline constexpr std::int64_t kMaxWholeEmbedding = std::int64_t{1} << 30;

// Lets a GPU's rank hold the whole embedding if that takes at most `max_bytes`.
void hold_small_embedding_whole(const ModelConfig& config, std::size_t bytes_of_number, std::int64_t max_bytes,
                                RankShard& shard);

// A matrix as a rank holds it. With 0 outputs, the model does not have it.
struct MatrixShape {
    int outputs = 0;
    int inputs = 0;
    std::int64_t first_input = 0; // place of its inputs in a stored row, for a matrix whose inputs are sharded
};

} // namespace entrodraft::model
