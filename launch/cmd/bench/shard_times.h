// How long a pass over one rank's shard takes by itself, with nobody to sum up with: what the scaling model builds on.
//
// The shard of the first rank of so many is loaded on a single rank and run as if the others were there. What does not
// shrink with the ranks (norms, copies of KV heads, what a pass costs by itself) and what fits a cache once it is cut
// is in the time, all-reduces and the others' share of the memory's bandwidth are not. Called by bench latency.
#pragma once

#include "launch/load/model_pair.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

struct ShardPlan {
    std::string target; // directory, or a name in the cache
    std::vector<int> of;
    int context = 64;
    int repetitions = 200;
};

// Seconds, medians.
struct ShardTime {
    int of = 1;
    double beside_draft = 0; // as colocated ranks have it: draft passes between; as `alone` without a draft
    double alone = 0;        // as ranks have it that never draft
    double limit = 0;        // max(bytes / read rate, operations / peak), of this rank alone
};

// Throws BadOption where shards are to be timed by themselves on several ranks: before anything is. Local.
void require_one_rank_for(const std::vector<int>& shards, int n_ranks);

// Throws BadOption where the target's heads cannot be sharded across so many. Local.
void require_heads_for(const std::vector<int>& shards, const model::ModelConfig& config);

// Nothing where the plan lists nothing. On the only rank. Throws std::invalid_argument where the target cannot be
// sharded across so many. Local.
std::vector<ShardTime> time_shards(ModelPair& models, const ShardPlan& plan);

// A table behind an empty line; nothing where there is none. Local.
std::string to_text(const std::vector<ShardTime>& shards);

} // namespace entrodraft::launch
