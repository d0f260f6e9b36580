// What a replica learns while it decodes, for everything that weighs drafting: how likely tokens are accepted, what
// passes cost, how many tokens a second the run makes, and whether drafting has paid.
//
// It lives on the coordinator, across sequences, in the order in which they are served.
#pragma once

#include "spec/plan/acceptance_model.h"
#include "spec/plan/cost_model.h"
#include "spec/plan/draft_policy.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace entrodraft::spec {

// Why rounds did without a draft. Times are in those of a token that is decoded plainly.
struct DraftWorth {
    std::int64_t declined = 0;             // rounds in which a draft seemed to cost more than it brings, ...
    std::int64_t declined_for_reading = 0; // ... of these, because the draft would have had to read the text first
    double pass = 0;                       // a draft pass
    bool is_pass_timed = false;            // else it goes by the sizes of the models
    double row = 0;                        // a further row of the target's pass
    double reading = 0;                    // a token of the text that the draft reads first
    double acceptance = 0;                 // chance that a drafted token is accepted
    std::vector<double> row_costs = {};    // CostModel::row_costs
};

struct GainModel {
    explicit GainModel(const CostOptions& options) : costs(options), policy(costs.are_fixed()) {}

    void learn(const RoundRecord& round);
    // As far as is known now.
    DraftWorth worth() const;

    AcceptanceModel acceptance;
    CostModel costs;
    Pace pace; // of the run, in the model's own costs
    DraftPolicy policy;
    // k of a persistent `heuristic` as the replica's last round left it; none before the first.
    std::optional<int> kept_draft_tokens;
};

} // namespace entrodraft::spec
