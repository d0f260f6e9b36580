// Gives each rank its role. Pure: it uses neither MPI nor state, and every rank computes the same answer.
//
// The world is cut into replicas of equal size. In a replica the coordinator drafts, broadcasts and verifies. It owns
// the draft; if the draft is sharded, all ranks own it. Code asks for roles, never for rank numbers.
#pragma once

#include <string>

namespace entrodraft::dist {

enum class DraftPlacement {
    colocated, // TP rank 0 also drafts
    dedicated, // on one additional rank, which holds no part of the target
    sharded,   // the draft is sharded across the TP ranks like the target
};

std::string to_string(DraftPlacement placement); // "colocated", ...

struct RankLayout {
    int world_rank = 0;
    int world_size = 1;
    int replicas = 1;
    int replica = 0;      // group of ranks that this rank belongs to
    int replica_rank = 0; // rank within the replica
    int replica_size = 1;
    int tp_rank = 0; // rank within the tensor-parallel group; -1 when this rank holds no target shard
    int tp_size = 1;
    DraftPlacement placement = DraftPlacement::colocated;

    static constexpr int kCoordinatorReplicaRank = 0;

    bool is_coordinator() const { return replica_rank == kCoordinatorReplicaRank; }
    bool owns_draft() const { return placement == DraftPlacement::sharded || is_coordinator(); }
    bool holds_target() const { return tp_rank >= 0; }
    bool is_writer() const { return world_rank == 0; } // the one rank that talks to people and files
};

// Returns the layout of `world_rank`. Throws std::invalid_argument, with the sizes that would work, when the world does
// not divide into `replicas` groups or a dedicated drafter would leave no target rank.
RankLayout make_layout(int world_rank, int world_size, int replicas, DraftPlacement placement);

} // namespace entrodraft::dist
