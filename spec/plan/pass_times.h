// What passes take, learnt from rounds as they go: what rows and draft passes cost is told apart from how fast the
// machine is at the moment.
//
// On a shared machine that moves by a fifth within tens of passes, of target and draft alike; a row more costs less
// than that. So the time of a target pass is taken to be the product of the two, and both are followed by an extended
// Kalman filter in which the machine wanders quickly and costs hardly do. Costs are in seconds of the run's first
// target passes: only their ratios mean anything.
//
// A row costs more than its own pass shows: where processors have just worked harder they are slower for some passes.
// That is taken for the speed of the moment, so what rows are seen to cost is raised by kBehind.
#pragma once

#include "spec/plan/learned_weights.h"

#include <array>
#include <cmath>
#include <cstddef>

namespace entrodraft::spec {

class PassTimes {
  public:
    // The ratio of the models' passes as long as none is timed.
    explicit PassTimes(double draft_to_target_cost);

    static constexpr double kBehind = 0.2; // of a row's cost in its own pass; on a Xeon 0.1 to 0.3 (bench/NOTES.md)

    // Of a pass, in a run of passes of so many rows; never less than over fewer rows.
    double target_seconds(int rows) const;
    // Of a round's draft passes, with so many rows beyond one each; of a cascade also parts of passes.
    double draft_seconds(double passes, double further_rows) const;
    // How many times as long as these say passes take at the moment.
    double slowness() const { return std::exp(target_.values()[0]); }
    bool knows_draft() const { return draft_timed_ >= kFirst; }
    void forget_draft() { draft_timed_ = 0; } // when it was timed so long ago that it may be wrong

    // Seconds by the clock; of a pass that several sequences tell of, each is a share. The target's pass of a round
    // comes first.
    void learn_target(int rows, double seconds, double share);
    void learn_draft(double passes, double further_rows, double seconds);

  private:
    // Segments of row counts, within each of which a row more costs the same: of one row up to 16, then doubled.
    static constexpr std::size_t kNarrow = 15, kSegments = kNarrow + 4;
    // The logarithm of the slowness; what a row more costs, in passes of one row; and by segment how much more than
    // that.
    static constexpr std::size_t kRow = 1, kFirstSegment = 2;
    using TargetWeights = LearnedWeights<kFirstSegment + kSegments>;
    using DraftWeights = LearnedWeights<3>; // a pass, what a round's first one takes beyond that, a further row

    // Of so many of the first times the least counts: caches are cold then, and nothing else tells an outlier.
    static constexpr int kFirst = 3;

    static TargetWeights first_target_weights();
    static DraftWeights first_draft_weights();
    static int first_row(std::size_t segment);   // the row behind which it begins
    static std::size_t segment_behind(int rows); // in which one more than these lies
    static TargetWeights::Vector features_of(int rows);
    double row_cost(std::size_t segment) const;
    double own_cost(int rows) const; // of a pass by itself, in target_unit_
    void refresh_costs();

    TargetWeights target_;
    std::array<double, kSegments> cost_{}; // of a pass of as many rows as a segment's first, in target_unit_
    double target_unit_ = 1;               // seconds
    double target_timed_ = 0;              // passes
    double usual_cost_ = 1;                // mean of own_cost() over the last passes
    DraftWeights draft_;
    double draft_unit_;   // in target_unit_
    int draft_timed_ = 0; // rounds
};

} // namespace entrodraft::spec
