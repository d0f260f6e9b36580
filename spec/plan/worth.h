// Decides if one more drafted token is worth its time. Chains, trees, beams and lookahead ask this.
//
// The goal is tokens a second, so time is counted in tokens: a second is worth the number of tokens that the run emits
// in it. Example: at 20 tokens a second, a draft pass of 5 ms costs 0.1 tokens. The pass pays if more tokens are
// expected from it.
#pragma once

#include "spec/plan/gain_model.h"

namespace entrodraft::spec {

// The state of a round when another token is considered.
struct RoundSoFar {
    double passes = 0;          // draft passes
    double further_rows = 0;    // rows of these passes, beyond one for each pass
    int rows = 1;               // rows of this text in the target's pass
    double expected_tokens = 1; // tokens that the round emits on average if it ends now
    BatchLoad load = {};
};

class Worth {
  public:
    // `gain` must outlive this object.
    Worth(const GainModel& gain, const RoundSoFar& round);

    // The tokens a second that further drafting has to beat: the run's rate or, until that is known, this round's own.
    double rate() const { return rate_; }
    // The number of tokens that these seconds are worth.
    double of(double seconds) const { return rate_ * seconds; }
    // The price in tokens of more draft passes in this round. `further_rows`: their rows beyond one for each pass.
    double of_passes(double passes, double further_rows = 0) const;
    // The price in tokens if this text has `to` rows in the target's pass instead of `from`.
    double of_rows(int from, int to) const;
    // A threshold for the chance that all `drafted` tokens of the round are accepted: above it another pass pays. For
    // this, some number n of further tokens must bring more than it costs, with `drafted` + n at most `cap`. Each
    // further token is accepted with probability `acceptance`. Infinity if `drafted` is `cap` already.
    double least_chance(int drafted, int cap, const PassCost& cost, double acceptance) const {
        return least_chance(drafted, cap, cost, acceptance, 0);
    }
    // Returns whether another pass pays if the `drafted` tokens are all accepted with this chance.
    bool affords(double chance, int drafted, int cap, const PassCost& cost, double acceptance) const {
        return least_chance(drafted, cap, cost, acceptance, chance) < chance;
    }

  private:
    // The same, or the first value found below `enough`.
    double least_chance(int drafted, int cap, const PassCost& cost, double acceptance, double enough) const;

    const CostModel* costs_;
    RoundSoFar round_;
    double rate_;
};

} // namespace entrodraft::spec
