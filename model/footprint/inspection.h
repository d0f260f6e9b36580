// Computes what each rank needs for a model that is sharded across ranks, and how much of that fits into a memory. It
// is arithmetic on a config, with no weights and no ranks. Called by inspect, bench latency and the memory plan.
#pragma once

#include "model/families/config.h"
#include "model/weights/rank_shard.h"

#include <cstdint>
#include <functional>

namespace entrodraft::model {

// How a model is to be run.
struct RunShape {
    int ranks = 1;
    int threads = 1; // of each rank
    int batch = 1;   // sequences
    int length = 0;  // positions of each
    WeightType type = WeightType::float32;
    bool on_gpu = false;                    // the bytes are then those of its memory; or of torch's device
    int tree_positions = 0;                 // of length, those of trees that stay in the cache
    std::optional<WeightType> kv_type = {}; // of CPUs; none: kv_type_of()'s choice
};

struct RankNeeds {
    RankShard shard;
    bool shares_kv_heads = false;       // some of its KV heads are copies that other ranks hold too
    std::uint64_t weight_bytes = 0;     // packed; norms, biases and learned positions in float32
    std::uint64_t cache_bytes = 0;      // keys and values, of cache_type()
    std::uint64_t activation_bytes = 0; // buffers of the longest pass; and a GPU's graphs of common ones
    std::uint64_t total_bytes() const { return weight_bytes + cache_bytes + activation_bytes; }
};

// Of keys and values. Pure.
WeightType cache_type(const ModelConfig& config, const RunShape& run);

// Throws std::invalid_argument where the model cannot be sharded across so many ranks, and where the bytes of so many
// positions cannot be counted in 63 bits.
RankNeeds needs_of(const ModelConfig& config, const RunShape& run, int rank);

// The ranks sum these up in a pass of one row: the embedding, unless each rank holds all of it, and each layer's parts
// of the residual stream. One rank sums nothing.
struct AllReduces {
    std::int64_t count = 0;
    std::int64_t bytes = 0; // of one rank, all together
};
AllReduces all_reduces_of(const ModelConfig& config, const RunShape& run);

// The most positions, in whole blocks of the cache or all of the model's, for which bytes_of, which grows with the
// length, is at most `memory_bytes`; 0: for none. What bytes_of cannot count (std::invalid_argument) is too much.
int longest_that_fits(const ModelConfig& config, const std::function<std::uint64_t(int length)>& bytes_of,
                      std::uint64_t memory_bytes);

} // namespace entrodraft::model
