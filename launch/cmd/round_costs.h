// Measures the costs of rounds on this machine: the times of drafting, of target passes by their rows, and of
// everything else in a round. They are measured during decoding, while bench latency times passes alone. With these
// costs, counts of passes become milliseconds that agree with real runs. Called by record and tune.
#pragma once

#include "launch/cmd/bench/latency.h"
#include "launch/load/drafters.h"
#include "launch/load/model_pair.h"
#include "spec/protocol/stats.h"

#include <optional>
#include <span>
#include <vector>

namespace entrodraft::launch {

constexpr int kMaxCostPrompts = 32; // prompts to decode, if there is time

struct CostTask {
    dist::Session& session;
    ModelPair& models;
    const Drafters& drafters;
    std::span<const spec::Request> prompts; // on the coordinator
    int max_draft_tokens;
    bool with_trees;
    bool quiet; // false: the limit and the remaining time are shown
    const volatile int& stop_signal;
};

// Returns the costs of each draft with the target, on the coordinator. Decodes each of the first prompts once for every
// length of a draft, and `with_trees` once with trees, within fifteen seconds a draft. If these do not suffice, some
// lengths are not timed: they are NaN, so that their costs are interpolated. Returns nothing, on all ranks, once
// `stop_signal` is set on one. Collective over the world.
std::optional<std::vector<spec::Costs>> measure_round_costs(const CostTask& task);

// Adds passes with more rows than decoding has timed. The additional time is that of `passes`, which were timed alone.
// Does nothing if there are no costs.
void add_wider_passes(const PassTimes& passes, spec::Costs& costs);

} // namespace entrodraft::launch
