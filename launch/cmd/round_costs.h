// What rounds cost on this machine, as rounds pay it: times of drafting, of target passes by their rows, and of all
// around them, taken from decoding itself and not from passes alone (bench latency times these).
//
// With them, counts of passes become milliseconds that runs agree with. Called by record and tune.
#pragma once

#include "launch/cmd/bench/latency.h"
#include "launch/load/drafters.h"
#include "launch/load/model_pair.h"
#include "spec/stats.h"

#include <optional>
#include <span>
#include <vector>

namespace entrodraft::launch {

constexpr int kMaxCostPrompts = 32; // that are decoded; as many as some seconds suffice for, at least two

// Of each draft with the target, on the coordinator; `prompts` count there. Decodes each of the first prompts once
// for every length of a draft, and `with_trees` once with trees. Nothing, on any rank, once `stop_signal` is set on
// one. Collective over the world.
std::optional<std::vector<spec::Costs>> measure_round_costs(dist::Session& session, ModelPair& models,
                                                            const Drafters& drafters,
                                                            std::span<const spec::Request> prompts,
                                                            int max_draft_tokens, bool with_trees,
                                                            const volatile int& stop_signal);

// Passes of more rows than were timed in decoding take as much longer as passes alone do, of `passes`. Nothing where
// there are no costs. Local.
void add_wider_passes(const PassTimes& passes, spec::Costs& costs);

} // namespace entrodraft::launch
