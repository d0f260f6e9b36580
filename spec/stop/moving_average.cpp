// moving-average: stops where the draft's squared entropy reaches a multiple of its average over the tokens before.
//
// Paper: the thesis "Entropy Drafting" (2024).
// Formula: x_t^2 >= lambda * mean(x_{t-i}^2, i = 1..min(n, t-1)), from t = 2.
// On a device: the same comparison.
#include "spec/stop/shared.h"

namespace entrodraft::spec {

namespace {

class MovingAverage final : public StopCondition {
  public:
    explicit MovingAverage(const StopRuleOptions& options)
        : lambda_(options.get("factor")), n_(static_cast<int>(options.get("window"))) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<MovingAverage>(*this); }
    bool fires(const Drafting& drafting) override {
        const EntropyWindow window(drafting, n_);
        return window.before > 0 && window.latest >= lambda_ * window.earlier / window.before;
    }
    void forecast(const Drafting&, DeviceStopRule& rule) const override {
        rule.kind = DeviceStopRule::Kind::moving_average;
        rule.factor = lambda_;
        rule.window = n_;
    }

  private:
    double lambda_;
    int n_;
};

} // namespace

StopRuleType moving_average_rule() {
    return {.name = "moving-average",
            .position = 20,
            .parameters = {{.name = "factor",
                            .default_value = 0.3,
                            .above_min = true,
                            .grid = {0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.2}},
                           entropy_window({1, 3, 7})},
            .make = make_stop_condition<MovingAverage>};
}

} // namespace entrodraft::spec
