// How long collectives take, each of its slowest rank.
//
// Called by bench latency and doctor.
#pragma once

#include "dist/session.h"
#include "launch/environment.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

struct NamedCollective {
    std::string name;
    std::function<void()> run; // collective over the group that it is for; on ranks outside it, nothing
    std::size_t bytes = 0;     // that a rank brings or, of a broadcast, gets
};

struct CollectiveTime {
    std::string name;
    Quantiles seconds;
    std::size_t bytes = 0;
};

// Each as often as `repetitions` says, one after another. On the writer; elsewhere without meaning. Collective over the
// world.
std::vector<CollectiveTime> time_collectives(dist::Session& session, std::span<const NamedCollective> collectives,
                                             int repetitions, double timeout_seconds);

// "all-reduce, 1 row of 320: 118.00 us over shared memory, 0.80 us over MPI: ...", of the sum that is the most times
// slower; empty where none is. The times are of the same collectives. Local.
std::string slower_sum(std::span<const CollectiveTime> over_shared_memory, std::span<const CollectiveTime> over_mpi);

} // namespace entrodraft::launch
