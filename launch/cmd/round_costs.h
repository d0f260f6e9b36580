// What rounds cost on this machine, as rounds pay it: times of drafting, of target passes by their rows, and of all
// around them, taken from decoding itself and not from passes alone (bench latency times these).
//
// With them, counts of passes become milliseconds that runs agree with. Called by record and tune.
#pragma once

#include "launch/cmd/bench/latency.h"
#include "launch/load/drafters.h"
#include "launch/load/model_pair.h"
#include "spec/protocol/stats.h"

#include <optional>
#include <span>
#include <vector>

namespace entrodraft::launch {

constexpr int kMaxCostPrompts = 32; // that are decoded, if there is time

struct CostTask {
    dist::Session& session;
    ModelPair& models;
    const Drafters& drafters;
    std::span<const spec::Request> prompts; // on the coordinator
    int max_draft_tokens;
    bool with_trees;
    bool quiet; // else the limit, and what is left of it, are shown
    const volatile int& stop_signal;
};

// Costs of each draft with the target, on the coordinator. Decodes each of the first prompts once for every length of a
// draft, and `with_trees` once with trees, within fifteen seconds a draft. Where these do not suffice, some lengths are
// not timed: not a number, so that costs lie between those of others. Nothing, on any rank, once `stop_signal` is set
// on one. Collective over the world.
std::optional<std::vector<spec::Costs>> measure_round_costs(const CostTask& task);

// Passes of more rows than were timed in decoding take as much longer as passes alone do, of `passes`. Nothing where
// there are no costs.
void add_wider_passes(const PassTimes& passes, spec::Costs& costs);

} // namespace entrodraft::launch
