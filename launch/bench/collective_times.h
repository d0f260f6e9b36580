// How long collectives take, each of its slowest rank.
//
// Called by bench latency and doctor.
#pragma once

#include "entrodraft/dist/session.h"
#include "entrodraft/launch/environment.h"

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

} // namespace entrodraft::launch
