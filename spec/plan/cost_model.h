// What passes cost in seconds: a target pass by its rows, draft passes, and a token of the text that the draft reads
// first.
//
// The costs are fixed (--costs, simulation), or PassTimes learns them while the run goes. With fixed costs everything
// that is planned depends on counts alone, so that a run can be repeated exactly.
#pragma once

#include "spec/plan/pass_times.h"
#include "spec/plan/round_values.h"
#include "spec/protocol/stats.h"

#include <array>
#include <optional>
#include <vector>

namespace entrodraft::spec {

struct CostOptions {
    int max_rows = 16;                 // most rows of a target pass
    double draft_to_target_cost = 0.1; // of a pass, before anything is measured: the ratio of their weights' bytes
    std::optional<Costs> costs = {};   // fixed costs in place of measured ones
};

class CostModel {
  public:
    static constexpr double kMaxOver = 1.5; // a time counts for at most so many times what is expected

    explicit CostModel(const CostOptions& options);

    bool are_fixed() const { return options_.costs.has_value(); }
    int max_rows() const { return options_.max_rows; } // of a target pass
    // Seconds of `passes` draft passes of one round, with so many rows beyond one each. A cascade has parts of passes.
    double draft_seconds(double passes, double further_rows = 0) const;
    // Seconds of a target pass over `rows` rows; never less than over fewer.
    double target_seconds(int rows) const;
    // Seconds in which the draft reads so many tokens before its first pass; 0 where costs are fixed.
    double reading_seconds(int tokens) const;
    // Whether draft passes have been timed, not too long ago, or their cost is fixed.
    bool knows_draft() const { return are_fixed() || times_.knows_draft(); }
    // [r - 1]: a target pass of r rows, in passes of one row, as the run has learnt it; empty: it has seen too little.
    std::vector<double> row_costs() const;
    // The clock's seconds without the speed of the moment (PassTimes).
    double steady(double seconds) const { return seconds / times_.slowness(); }

    // Where so many tokens are to be read, their end is so much less that it may do.
    static constexpr int kEnd = 256; // tokens
    static bool is_long(int unread) { return unread > 2 * kEnd; }

    void learn(const RoundRecord& round);

  private:
    void fix_target_seconds(const Costs& costs);
    void learn_reading(const RoundRecord& round);

    CostOptions options_;
    PassTimes times_;                         // unless costs are fixed, ...
    std::vector<double> target_seconds_;      // ... when these hold: [rows - 1]
    std::array<double, 2> reading_seconds_{}; // a token, of a few tokens and of many; 0: not timed yet
    int rounds_since_timed_ = 0;              // rounds after the last one with a draft
    int last_rows_ = 0, row_changes_ = 0;     // of target passes; how often they differed from the last one's
};

} // namespace entrodraft::spec
