// Whether rounds that draft have paid of late. Where they have not, one is tried now and then: after 8 rounds, then 16,
// 32, ... across texts, half as many rounds where one paid. For drafters that draft all of something or nothing.
#pragma once

#include <algorithm>
#include <optional>

namespace entrodraft::spec {

class DraftingTrials {
  public:
    // `gain`: what a round that drafted brought, in tokens, beyond what its seconds would have brought without.
    void learn(double gain) {
        constexpr double kMinStep = 0.005, kPriorRounds = 10;
        *mean_gain_ += std::max(kMinStep, 1 / (++n_rounds_ + kPriorRounds)) * (gain - *mean_gain_);
        gap_ = *mean_gain_ >= 0 ? kFirstGap : std::clamp(gain > 0 ? gap_ / 2 : 2 * gap_, kFirstGap, kLastGap);
    }
    // Whether this round drafts. `first_gain()`: what to expect before any has; `affords_one`: whether a round that
    // brings nothing may be tried.
    template <typename FirstGain> bool begins(FirstGain first_gain, bool affords_one = true) {
        if (!mean_gain_) mean_gain_ = first_gain();
        if (*mean_gain_ >= 0) return true;
        if (++rounds_without_ < gap_ || !affords_one) return false;
        rounds_without_ = 0;
        return true;
    }

  private:
    static constexpr int kFirstGap = 8, kLastGap = 2048; // rounds without drafting, before one is tried

    std::optional<double> mean_gain_; // of rounds that drafted
    double n_rounds_ = 0;             // of these
    int rounds_without_ = 0, gap_ = kFirstGap;
};

} // namespace entrodraft::spec
