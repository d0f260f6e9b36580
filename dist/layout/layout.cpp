// Derives roles from rank numbers. A replica is a run of neighbouring ranks, and its first rank is the coordinator.
#include "dist/layout/layout.h"

#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::dist {
namespace {

std::string divisors_of(int number) {
    std::string list;
    for (int candidate = 1; candidate <= number; ++candidate) {
        if (number % candidate != 0) continue;
        list += fmt::format("{}{}", list.empty() ? "" : ", ", candidate);
    }
    return list;
}

std::string counted(int count, const std::string& noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

void check_sizes(int world_rank, int world_size, int replicas, DraftPlacement placement) {
    if (world_size < 1 || world_rank < 0 || world_rank >= world_size) {
        throw std::invalid_argument(fmt::format("rank {} is not one of {}", world_rank, counted(world_size, "rank")));
    }
    if (replicas < 1) {
        throw std::invalid_argument(fmt::format("--replicas {}: must be at least 1", replicas));
    }
    if (world_size % replicas != 0) {
        throw std::invalid_argument(fmt::format(
            "--replicas {0}: {1} cannot be cut into {2}; use --replicas {3}, or start a multiple of {0} ranks",
            replicas, counted(world_size, "rank"), counted(replicas, "equal group"), divisors_of(world_size)));
    }
    if (placement == DraftPlacement::dedicated && world_size / replicas < 2) {
        throw std::invalid_argument(
            fmt::format("--draft-placement dedicated: {} in {} leave no rank for the target; start at least {} ranks, "
                        "or use --draft-placement colocated",
                        counted(world_size, "rank"), counted(replicas, "replica"), 2 * replicas));
    }
}

} // namespace

std::string to_string(DraftPlacement placement) {
    switch (placement) {
    case DraftPlacement::colocated:
        return "colocated";
    case DraftPlacement::dedicated:
        return "dedicated";
    case DraftPlacement::sharded:
        return "sharded";
    }
    throw std::invalid_argument("to_string: no such placement");
}

RankLayout make_layout(int world_rank, int world_size, int replicas, DraftPlacement placement) {
    check_sizes(world_rank, world_size, replicas, placement);
    RankLayout layout;
    layout.world_rank = world_rank;
    layout.world_size = world_size;
    layout.replicas = replicas;
    layout.replica_size = world_size / replicas;
    layout.replica = world_rank / layout.replica_size;
    layout.replica_rank = world_rank % layout.replica_size;
    layout.placement = placement;
    const int drafters_only = placement == DraftPlacement::dedicated ? 1 : 0;
    layout.tp_rank = layout.replica_rank - drafters_only; // -1 for the dedicated drafter
    layout.tp_size = layout.replica_size - drafters_only;
    return layout;
}

} // namespace entrodraft::dist
