// Which rank holds the others up: where ranks meet in every layer, the one that waits least is the slowest.
//
// Looked at once, when a run has ended. A coordinator that drafts is no slow rank: the others await it in the
// broadcast, not in the sums of a pass, whose waits are counted here. Called by generate.
#pragma once

#include "dist/layout.h"
#include "dist/session.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// Of one rank; goes through a collective as it is.
struct RankWait {
    char host[64] = {};        // zero-terminated
    int replica = -1;          // -1: it holds no part of the target
    double waited_seconds = 0; // for the others of its target, in sums
    double run_seconds = 0;
};

// Every rank's, on the writer. `tp` is null where a rank holds no part of the target. Collective over the world.
std::vector<RankWait> gather_waits(dist::Session& session, const dist::RankLayout& layout, const dist::Communicator* tp,
                                   double run_seconds, double timeout_seconds);

// "rank 2 (host n1): the others waited 31 % of the time for it", of the replica where it is worst; empty where nobody
// waits a tenth of the time more than another. Local.
std::string describe_slowest(const std::vector<RankWait>& ranks);

} // namespace entrodraft::launch
