// adaedl: stops where the acceptance bound that the entropy gives falls below lambda. Lambda follows the acceptance
// rate.
//
// Paper: Agrawal et al. 2024, "AdaEDL". The update of lambda is from Zhang et al. 2023, "Draft & Verify".
// Formula: 1 - sqrt(gamma x_t) < lambda. After a round, r = 0.5 r + 0.5 accepted / drafted. Then lambda' = lambda +
// 0.01 if r <= 0.9, else lambda - 0.01, and lambda = 0.9 lambda + 0.1 lambda'. Each text begins with r = 0 and lambda =
// 0.6.
// On a device: the entropy above which that is true, (1 - lambda)^2 / gamma.
#include "spec/stop/stop_rule.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::spec {

namespace {

constexpr double kFirstLambda = 0.6;

class Adaedl final : public StopCondition {
  public:
    explicit Adaedl(const StopRuleOptions& options) : gamma_(options.get("gamma")) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<Adaedl>(*this); }
    bool fires(const Drafting& drafting) override { return 1 - std::sqrt(gamma_ * drafting.entropy()) < lambda_; }
    void forecast(const Drafting&, DeviceStopRule& rule) const override {
        rule.kind = DeviceStopRule::Kind::entropy;
        rule.threshold = std::pow(std::max(0.0, 1 - lambda_), 2) / gamma_;
    }
    // Lambda moves in small steps towards an acceptance rate of 0.9.
    void end_round(const Drafting&, const RoundFeedback& round) override {
        constexpr double kGoal = 0.9, kStep = 0.01, kRateDecay = 0.5, kLambdaDecay = 0.9;
        if (round.cut_short || round.drafted == 0) return;
        acceptance_rate_ = kRateDecay * acceptance_rate_ + (1 - kRateDecay) * round.accepted / round.drafted;
        const double moved = lambda_ + (acceptance_rate_ <= kGoal ? kStep : -kStep);
        lambda_ = kLambdaDecay * lambda_ + (1 - kLambdaDecay) * moved;
    }

  private:
    double gamma_;
    double lambda_ = kFirstLambda;
    double acceptance_rate_ = 0; // smoothed
};

} // namespace

StopRuleType adaedl_rule() {
    return {.name = "adaedl",
            .position = 90,
            .parameters = {{.name = "gamma", .default_value = 0.2, .above_min = true, .grid = {0.02, 0.05, 0.1, 0.2}}},
            .make = make_stop_condition<Adaedl>};
}

} // namespace entrodraft::spec
