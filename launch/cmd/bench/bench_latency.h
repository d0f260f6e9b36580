// Measured costs of a pair on this machine: passes, collectives, and the limits of the cores.
//
// Called by the commands bench latency, bench compare and record.
#pragma once

#include "launch/cmd/bench/collective_times.h"
#include "launch/environment.h"
#include "launch/load/model_pair.h"
#include "spec/stats.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// All of the slowest rank. On the writer; empty elsewhere.
struct Latency {
    std::vector<Quantiles> target; // [r - 1]: a pass of r rows and the truncation after it
    Quantiles first_draft;         // of one row, right after a target pass; zeros without a draft
    Quantiles draft;               // of one row, after another draft pass
    std::vector<double> limit;     // [r - 1]: max(bytes / read rate, operations / peak)
    double weight_bytes = 0;       // of a rank
    double read_rate = 0;          // bytes a second, of the slowest rank, all ranks reading
    double peak = 0;               // operations a second
    std::vector<CollectiveTime> collectives;

    spec::Costs costs() const;
};

// Costs of each level of drafting: the first draft for the target (`latency`), the second for the first, and so on. On
// the coordinator; empty elsewhere. Local.
std::vector<spec::Costs> level_costs(const Latency& latency, ModelPair& models, const LatencyPlan& plan);

// Passes of 1 to rows rows, interleaved, all with `context` tokens in the cache. Collective over the world.
Latency measure_latency(dist::Session& session, ModelPair& models, const LatencyPlan& plan);

// LatencyPlan's context, or what positions the models leave beside rows, where that is less. Local.
int fitting_context(const ModelPair& models, int rows);

} // namespace entrodraft::launch
