// cumulative: stops where the squared entropies of the last tokens add up to a threshold.
//
// Paper: the thesis "Entropy Drafting" (2024).
// Formula: sum(x_{t-i}^2, i = 0..min(n, t-1)) >= tau.
// On a device: the same sum.
#include "spec/stop/shared.h"

namespace entrodraft::spec {

namespace {

class Cumulative final : public StopCondition {
  public:
    explicit Cumulative(const StopRuleOptions& options)
        : tau_(options.get("threshold")), n_(static_cast<int>(options.get("window"))) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<Cumulative>(*this); }
    bool fires(const Drafting& drafting) override {
        const EntropyWindow window(drafting, n_);
        return window.earlier + window.latest >= tau_;
    }
    void forecast(const Drafting&, DeviceStopRule& rule) const override {
        rule.kind = DeviceStopRule::Kind::squares;
        rule.threshold = tau_;
        rule.window = n_;
    }

  private:
    double tau_; // nats^2
    int n_;
};

} // namespace

StopRuleType cumulative_rule() {
    return {.name = "cumulative",
            .position = 30,
            .parameters = {{.name = "threshold", // nats^2
                            .default_value = 1,
                            .grid = {0.5, 1, 1.5, 2, 3, 5, 10, 20}},
                           entropy_window()},
            .make = make_stop_condition<Cumulative>};
}

} // namespace entrodraft::spec
