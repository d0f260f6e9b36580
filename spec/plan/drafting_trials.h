// Decides if a round drafts, for drafters that draft all or nothing. If rounds with a draft have not paid lately, one
// is tried now and then, across texts. The first trial comes after 8 rounds. The number of rounds before the next trial
// doubles when a trial has lost, and halves when it has gained.
#pragma once

#include <algorithm>
#include <optional>

namespace entrodraft::spec {

class DraftingTrials {
  public:
    // `gain`: tokens that a round with a draft brought, less those that its seconds would have brought without it.
    void learn(double gain) {
        constexpr double kMinStep = 0.005, kPriorRounds = 10;
        *mean_gain_ += std::max(kMinStep, 1 / (++n_rounds_ + kPriorRounds)) * (gain - *mean_gain_);
        gap_ = *mean_gain_ >= 0 ? kFirstGap : std::clamp(gain > 0 ? gap_ / 2 : 2 * gap_, kFirstGap, kLastGap);
    }
    // Returns whether this round drafts. `first_gain()`: the expected gain before any round has drafted. `affords_one`:
    // true if a round that brings nothing may be tried.
    template <typename FirstGain> bool begins(FirstGain first_gain, bool affords_one = true) {
        if (!mean_gain_) mean_gain_ = first_gain();
        if (*mean_gain_ >= 0) return true;
        if (++rounds_without_ < gap_ || !affords_one) return false;
        rounds_without_ = 0;
        return true;
    }

  private:
    static constexpr int kFirstGap = 8, kLastGap = 2048; // rounds without a draft before one is tried

    std::optional<double> mean_gain_; // of rounds that drafted
    double n_rounds_ = 0;             // rounds that drafted
    int rounds_without_ = 0, gap_ = kFirstGap;
};

} // namespace entrodraft::spec
