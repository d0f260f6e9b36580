// svip: stops where the entropy gives too high a bound on the chance of a rejection.
//
// Paper: Zhang et al. 2024, "Draft Model Knows When to Stop".
// Formula: sqrt(0.15 x_t) > h.
// On a device: the entropy above which that is true, h^2 / 0.15.
#include "spec/stop/stop_rule.h"

#include <cmath>

namespace entrodraft::spec {

namespace {

constexpr double kSvipFactor = 0.15; // the paper's c: cross-entropy's share of the entropy

class Svip final : public StopCondition {
  public:
    explicit Svip(const StopRuleOptions& options) : h_(options.get("threshold")) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<Svip>(*this); }
    bool fires(const Drafting& drafting) override { return std::sqrt(kSvipFactor * drafting.entropy()) > h_; }
    void forecast(const Drafting&, DeviceStopRule& rule) const override {
        rule.kind = DeviceStopRule::Kind::entropy;
        rule.threshold = h_ * h_ / kSvipFactor;
    }

  private:
    double h_;
};

} // namespace

StopRuleType svip_rule() {
    return {.name = "svip",
            .position = 80,
            .parameters = {{.name = "threshold", .default_value = 0.3, .grid = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}}},
            .make = make_stop_condition<Svip>};
}

} // namespace entrodraft::spec
