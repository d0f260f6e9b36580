// static: stops where the draft's entropy reaches a threshold.
//
// Paper: the thesis "Entropy Drafting" (2024).
// Formula: x_t >= tau.
// On a device: the same threshold.
#include "spec/stop/shared.h"

#include <cmath>

namespace entrodraft::spec {

namespace {

class StaticThreshold final : public StopCondition {
  public:
    explicit StaticThreshold(const StopRuleOptions& options) : tau_(options.get("threshold")) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<StaticThreshold>(*this); }
    // Rounding may leave the entropy of a certain token below 0.
    bool fires(const Drafting& drafting) override { return std::abs(drafting.entropy()) >= tau_; }
    void forecast(const Drafting&, DeviceStopRule& rule) const override {
        rule.kind = DeviceStopRule::Kind::entropy;
        rule.threshold = tau_;
    }

  private:
    double tau_; // nats
};

} // namespace

StopRuleType static_rule() {
    return {.name = "static",
            .position = 10,
            .parameters = {{.name = "threshold", // nats
                            .default_value = 0.75,
                            .grid = {0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4}}},
            .make = make_stop_condition<StaticThreshold>,
            .other_names = "entropy"};
}

} // namespace entrodraft::spec
