// Learns the times of passes during a run. Keeps two things apart: the cost of rows and draft passes, and the speed of
// the machine at the moment.
//
// On a shared machine this speed changes by a fifth within tens of passes, for target and draft alike. One more row
// costs less than that. So the time of a target pass is modelled as (slowness of the moment) * (cost). An extended
// Kalman filter follows both factors: the slowness changes quickly, the costs hardly change. Costs are in seconds at
// the speed of the run's first target passes, so only their ratios mean anything.
//
// A row costs more than the time of its pass shows, because processors that have just worked harder are slower in the
// next passes. The filter takes this for slowness of the moment. So the observed cost of rows is multiplied by
// 1 + kBehind.
#pragma once

#include "spec/plan/learned_weights.h"

#include <array>
#include <cmath>
#include <cstddef>

namespace entrodraft::spec {

class PassTimes {
  public:
    // `draft_to_target_cost`: the ratio of the models' passes until one is timed.
    explicit PassTimes(double draft_to_target_cost);

    static constexpr double kBehind = 0.2; // share of a row's own cost; 0.1 to 0.3 on a Xeon (bench/NOTES.md)

    // The seconds of a pass, in a run of passes of this number of rows. Never less than over fewer rows.
    double target_seconds(int rows) const;
    // The seconds of a round's draft passes. `further_rows`: their rows beyond one each. A cascade has parts of passes.
    double draft_seconds(double passes, double further_rows) const;
    // The slowness of the moment: the time of a pass now, divided by the seconds that these functions return.
    double slowness() const { return std::exp(target_.values()[0]); }
    bool knows_draft() const { return draft_timed_ >= kFirst; }
    void forget_draft() { draft_timed_ = 0; } // after many rounds without a draft: its cost may have changed

    // Seconds are by the clock. `share`: the part of the pass that this call reports, if several sequences report it. A
    // round's target pass is reported first.
    void learn_target(int rows, double seconds, double share);
    void learn_draft(double passes, double further_rows, double seconds);

  private:
    // Segments of row counts. Within one, each further row costs the same. They have one row up to 16, then double.
    static constexpr std::size_t kNarrow = 15, kSegments = kNarrow + 4;
    // Weight 0 is the logarithm of the slowness. kRow: the cost of a further row, in passes of one row. From
    // kFirstSegment on: how much more a row costs in each segment.
    static constexpr std::size_t kRow = 1, kFirstSegment = 2;
    using TargetWeights = LearnedWeights<kFirstSegment + kSegments>;
    using DraftWeights = LearnedWeights<3>; // a pass, the extra time of a round's first one, a further row

    // Of the first kFirst times the smallest counts: caches are cold at first, and there are no other times by which an
    // outlier could be told.
    static constexpr int kFirst = 3;

    static TargetWeights first_target_weights();
    static DraftWeights first_draft_weights();
    static int first_row(std::size_t segment);   // the row after which the segment begins
    static std::size_t segment_behind(int rows); // the segment of the next row after these
    static TargetWeights::Vector features_of(int rows);
    double row_cost(std::size_t segment) const;
    double own_cost(int rows) const; // of a pass by itself, in target_unit_
    void refresh_costs();

    TargetWeights target_;
    std::array<double, kSegments> cost_{}; // of a pass of first_row(segment) rows, in target_unit_
    double target_unit_ = 1;               // seconds
    double target_timed_ = 0;              // passes
    double usual_cost_ = 1;                // mean of own_cost() over the last passes
    DraftWeights draft_;
    double draft_unit_;   // in target_unit_
    int draft_timed_ = 0; // rounds
};

} // namespace entrodraft::spec
