// confidence: stops where the drafted token's probability in the draft's distribution is below a threshold.
//
// Source: assistant_confidence_threshold of transformers.
// Formula: c_t < c.
// On a device: the same threshold.
#include "spec/stop/stop_rule.h"

namespace entrodraft::spec {

namespace {

class Confidence final : public StopCondition {
  public:
    explicit Confidence(const StopRuleOptions& options) : min_(options.get("threshold")) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<Confidence>(*this); }
    bool fires(const Drafting& drafting) override {
        return static_cast<double>(drafting.tokens.back().probability) < min_;
    }
    void forecast(const Drafting&, DeviceStopRule& rule) const override {
        rule.kind = DeviceStopRule::Kind::probability;
        rule.threshold = min_;
    }

  private:
    double min_; // c
};

} // namespace

StopRuleType confidence_rule() {
    return {.name = "confidence",
            .position = 70,
            .looks_at = LooksAt::token,
            .parameters =
                {{.name = "threshold", .default_value = 0.7, .max = 1, .grid = {0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}}},
            .make = make_stop_condition<Confidence>};
}

} // namespace entrodraft::spec
