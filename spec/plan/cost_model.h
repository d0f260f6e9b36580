// Gives the cost of passes in seconds. It knows target passes by their rows, draft passes, and the reading of text
// tokens by the draft.
//
// Costs are fixed (--costs, simulation), or PassTimes learns them during the run. With fixed costs all plans depend on
// counts alone, so that a run can be repeated exactly.
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
    double draft_to_target_cost = 0.1; // of a pass, before any is measured: the ratio of the weights' bytes
    std::optional<Costs> costs = {};   // fixed costs in place of measured ones
};

class CostModel {
  public:
    static constexpr double kMaxOver = 1.5; // a measured time counts for at most this multiple of the expected time

    explicit CostModel(const CostOptions& options);

    bool are_fixed() const { return options_.costs.has_value(); }
    int max_rows() const { return options_.max_rows; } // of a target pass
    // Seconds of draft passes of one round. `further_rows`: their rows beyond one each. A cascade has parts of passes.
    double draft_seconds(double passes, double further_rows = 0) const;
    // Seconds of a target pass over `rows` rows; never less than over fewer.
    double target_seconds(int rows) const;
    // Seconds in which the draft reads these tokens before its first pass; 0 with fixed costs.
    double reading_seconds(int tokens) const;
    // Returns whether draft passes were timed not too long ago, or their cost is fixed.
    bool knows_draft() const { return are_fixed() || times_.knows_draft(); }
    // [r - 1]: a target pass of r rows, in passes of one row, as the run has learnt it. Empty if costs are fixed or
    // unknown.
    std::vector<double> row_costs() const;
    // Removes the slowness of the moment from measured seconds (PassTimes).
    double steady(double seconds) const { return seconds / times_.slowness(); }

    // With more than 2 * kEnd unread tokens, reading only the last kEnd may be better: it takes much less time.
    static constexpr int kEnd = 256; // tokens
    static bool is_long(int unread) { return unread > 2 * kEnd; }

    void learn(const RoundRecord& round);

  private:
    void fix_target_seconds(const Costs& costs);
    void learn_reading(const RoundRecord& round);

    CostOptions options_;
    PassTimes times_;                         // used if costs are not fixed
    std::vector<double> target_seconds_;      // used if they are: [rows - 1]
    std::array<double, 2> reading_seconds_{}; // for a token, of a few tokens and of many; 0: not timed yet
    int rounds_since_timed_ = 0;              // rounds since the last one with a draft
    int last_rows_ = 0, row_changes_ = 0;     // rows of the last round; how often that number changed
};

} // namespace entrodraft::spec
