// patience: stops after several uncertain tokens in a row.
//
// Source: none; it shows what a new rule takes.
// Formula: x_t >= h for the last `tokens` tokens.
// On a device: asked after each row.
#include "spec/stop/shared.h"

namespace entrodraft::spec {

namespace {

class Patience final : public StopCondition {
  public:
    explicit Patience(const StopRuleOptions& options)
        : h_(options.get("threshold")), most_(static_cast<int>(options.get("tokens"))) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<Patience>(*this); }
    void begin_round() override { in_a_row_ = 0; }
    bool fires(const Drafting& drafting) override {
        in_a_row_ = drafting.entropy() >= h_ ? in_a_row_ + 1 : 0;
        return in_a_row_ >= most_;
    }

  private:
    double h_; // nats
    int most_;
    int in_a_row_ = 0;
};

} // namespace

StopRuleType patience_rule() {
    return {.name = "patience",
            .parameters = {{.name = "threshold", .default_value = 1, .grid = {0.5, 1, 2}}, draft_length(2, {1, 2, 3})},
            .make = make_stop_condition<Patience>};
}

} // namespace entrodraft::spec
