// "Is one more drafted token worth its time?" Time is counted in tokens here: what its seconds bring at the run's rate.
//
// Chains, trees, beams and lookahead ask this. The objective is tokens a second: drafting on pays while it brings more
// tokens than its seconds would bring otherwise.
#pragma once

#include "spec/plan/gain_model.h"

namespace entrodraft::spec {

// A round as far as it has come.
struct RoundSoFar {
    double passes = 0;          // draft passes
    double further_rows = 0;    // rows of these, beyond one each
    int rows = 1;               // of this text in the target's pass
    double expected_tokens = 1; // that it emits if it ends now
    BatchLoad load = {};
};

class Worth {
  public:
    // `gain` outlives it.
    Worth(const GainModel& gain, const RoundSoFar& round);

    // Tokens a second that drafting on has to beat: the run's, or, while that is not known, this round's own.
    double rate() const { return rate_; }
    // The tokens that so many seconds are worth.
    double of(double seconds) const { return rate_ * seconds; }
    // More draft passes of this round, with so many rows beyond one each.
    double of_passes(double passes, double further_rows = 0) const;
    // This text having `to` rows in the target's pass in place of `from`.
    double of_rows(int from, int to) const;
    // The least chance that all of the round's `drafted` tokens are accepted at which another pass pays: for some
    // number of further tokens, up to `cap` in all, each accepted with probability `acceptance`.
    double least_chance(int drafted, int cap, const PassCost& cost, double acceptance) const;

  private:
    const CostModel* costs_;
    RoundSoFar round_;
    double rate_;
};

} // namespace entrodraft::spec
