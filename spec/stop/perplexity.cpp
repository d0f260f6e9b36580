// perplexity: stops where the drafted tokens have become improbable on average.
//
// Formula: exp(mean(-ln c_i, i = 1..t)) > P.
#include "spec/stop/stop_rule.h"

#include <cmath>

namespace entrodraft::spec {

namespace {

class Perplexity final : public StopCondition {
  public:
    explicit Perplexity(const StopRuleOptions& options) : max_(options.get("perplexity-threshold")) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<Perplexity>(*this); }
    bool fires(const Drafting& drafting) override {
        double nats = 0;
        for (const DraftedToken& token : drafting.tokens)
            nats -= std::log(static_cast<double>(token.probability));
        return std::exp(nats / drafting.drafted()) > max_;
    }

  private:
    double max_; // P
};

} // namespace

StopRuleType perplexity_rule() {
    return {.name = "perplexity",
            .position = 75,
            .looks_at = LooksAt::token,
            .parameters = {{.option = "perplexity-threshold",
                            .symbol = "P",
                            .label = "threshold",
                            .help = "of {}: greatest perplexity of the tokens drafted in a round",
                            .default_value = 2,
                            .min = 1,
                            .max = 1e6,
                            .grid = {1.2, 1.5, 2, 3, 5}}},
            .make = make_stop_condition<Perplexity>};
}

} // namespace entrodraft::spec
