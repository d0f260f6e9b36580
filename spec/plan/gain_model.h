// Has all that a replica learns while it decodes, for the code that weighs drafting: the chance that tokens are
// accepted, the cost of passes, the run's tokens a second, and if drafting has paid.
//
// The coordinator has one. It learns from all sequences, in the order in which they are served.
#pragma once

#include "spec/plan/acceptance_model.h"
#include "spec/plan/cost_model.h"
#include "spec/plan/draft_policy.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace entrodraft::spec {

// The reasons why rounds had no draft. Times are in units of one plainly decoded token.
struct DraftWorth {
    std::int64_t declined = 0;             // rounds in which a draft seemed to cost more than it brings
    std::int64_t declined_for_reading = 0; // rounds of these in which the reading of the text was the reason
    double pass = 0;                       // time of a draft pass
    bool is_pass_timed = false;            // false: estimated from the sizes of the models
    double row = 0;                        // time of a further row of the target's pass
    double reading = 0;                    // time of a text token that the draft reads first
    double acceptance = 0;                 // chance that a drafted token is accepted
    std::vector<double> row_costs = {};    // CostModel::row_costs
};

struct GainModel {
    explicit GainModel(const CostOptions& options) : costs(options), policy(costs.are_fixed()) {}

    void learn(const RoundRecord& round);
    // Reports what is known now.
    DraftWorth worth() const;

    AcceptanceModel acceptance;
    CostModel costs;
    Pace pace; // of the run, by the cost model's seconds
    DraftPolicy policy;
    // The k of a persistent `heuristic` after the replica's last round; none before the first.
    std::optional<int> kept_draft_tokens;
};

} // namespace entrodraft::spec
