// expected-gain: drafts while further tokens are expected to come faster than the run's own rate.
//
// Source: this project (docs/reference.md, expected-gain). Worth decides, from values that GainModel has learnt
// (spec/plan).
// Formula: there is another pass if, for some k' up to the cap, (expected further tokens) / (their draft and target
// seconds) exceeds the run's tokens a second. S_t is the probability that all t tokens are accepted. A token that was
// looked up, not drawn, is dropped unless S_t / (t_target(t + 1) - t_target(t)) exceeds that rate as well.
// On a device: for each t, the least S_t at which another pass pays.
#include "spec/plan/text_policy.h"
#include "spec/plan/worth.h"
#include "spec/stop/stop_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace entrodraft::spec {

namespace {

class ExpectedGain final : public StopCondition {
  public:
    ExpectedGain(const StopRuleOptions& options, GainModel* gain)
        : cap_(options.max_tokens), gain_(gain), text_(gain, cap_) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<ExpectedGain>(*this); }
    void begin_round() override {
        acceptances_.clear();
        all_accepted_ = expected_tokens_ = 1;
        text_.begin_round();
    }
    bool fires(const Drafting& drafting) override;
    int tokens_to_read(const Drafting& drafting) override { return text_.tokens_to_read(drafting.round); }
    bool wants_another(const Drafting& drafting, const PassCost& cost) override;
    void forecast(const Drafting& drafting, DeviceStopRule& rule) const override;
    void end_round(const Drafting& drafting, const RoundFeedback& round) override;

  private:
    void teach(std::span<const DraftedToken> tokens, const Drafting& drafting, const RoundFeedback& round);
    Worth worth_of(const Drafting& drafting) const {
        return {
            *gain_,
            {drafting.passes, drafting.further_rows, drafting.drafted() + 1, expected_tokens_, drafting.round.load}};
    }

    int cap_;
    GainModel* gain_;
    TextPolicy text_;
    std::vector<double> acceptances_; // a_t of this drafting phase
    double all_accepted_ = 1;         // a_1 a_2 ... of all of them
    double expected_tokens_ = 1;      // 1 + a_1 + a_1 a_2 + ...
    TextResidual residual_;
};

// A drawn token is never dropped: its chance depends on the token itself, so dropping by it would bias `rejection`.
bool ExpectedGain::fires(const Drafting& drafting) {
    acceptances_.push_back(gain_->acceptance.of(drafting.tokens.back(), residual_.value()));
    expected_tokens_ += all_accepted_ *= acceptances_.back();
    if (!std::isnan(drafting.entropy()) || text_.is_probe()) return false;
    const int drafted = drafting.drafted();
    return all_accepted_ <= worth_of(drafting).of_rows(drafted, drafted + 1);
}

bool ExpectedGain::wants_another(const Drafting& drafting, const PassCost& cost) {
    const Worth worth = worth_of(drafting);
    const bool reads = drafting.passes == 0 && cost.next > 0; // not for tokens that need no pass
    const bool pays = worth.affords(all_accepted_, drafting.drafted(), cap_, cost, gain_->acceptance.mean());
    if (drafting.drafted() == 0) return text_.begins(worth, drafting.round, cost, pays, reads);
    return pays && (!reads || text_.reading_pays(drafting.round, cost));
}

// The thresholds of wants_another() for the tokens to come: the least product of their acceptances.
void ExpectedGain::forecast(const Drafting& drafting, DeviceStopRule& rule) const {
    if (!gain_->pace.is_known() || text_.is_probe()) { // a row at a time
        rule.max_rows = 1;
        return;
    }
    rule.kind = DeviceStopRule::Kind::gain;
    std::ranges::copy(gain_->acceptance.line(residual_.value()), rule.weights);
    const int most = std::min({rule.max_rows, cap_ - drafting.drafted(), DeviceStopRule::kMaxLeast});
    rule.max_rows = std::max(1, most);
    for (int t = 1; t < most; ++t) {
        const int drafted = drafting.drafted() + t;
        const Worth worth(*gain_, {static_cast<double>(drafted), 0, drafted + 1, 1, drafting.round.load});
        const double least = worth.least_chance(drafted, cap_, {}, gain_->acceptance.mean()) / all_accepted_;
        rule.least[t - 1] = static_cast<float>(std::min<double>(least, std::numeric_limits<float>::max()));
    }
}

// ---- learning ----

// Returns whether the draft only read in this round: with much to read, it drafts in a later one.
bool reads_on(const RoundFeedback& round) {
    return round.drafted == 0 && round.caught_up > 0;
}

// The residual learns from drawn tokens. Tokens after the first rejected one were not verified.
void ExpectedGain::end_round(const Drafting& drafting, const RoundFeedback& round) {
    const auto drafted = std::min(drafting.tokens.size(), static_cast<std::size_t>(round.drafted));
    const auto accepted = static_cast<std::size_t>(round.accepted);
    const std::span<const DraftedToken> tokens = std::span(drafting.tokens).first(drafted);
    if (!round.is_foreseen) teach(tokens, drafting, round);
    for (std::size_t i = 0; i < std::min(drafted, accepted + 1); ++i)
        if (!std::isnan(tokens[i].entropy_nats)) residual_.learn(acceptances_[i], i < accepted);
    text_.settle(round.drafted, drafting.asked, reads_on(round));
}

void ExpectedGain::teach(std::span<const DraftedToken> tokens, const Drafting& drafting, const RoundFeedback& round) {
    gain_->learn({round, tokens, residual_.value(), drafting.passes, drafting.further_rows,
                  text_.reading_after(round.caught_up)});
    text_.teach(round.drafted, reads_on(round));
}

} // namespace

StopRuleType expected_gain_rule() {
    return {.name = "expected-gain",
            .position = 1'000'000, // the last
            .looks_at = LooksAt::token,
            .make = make_stop_condition<ExpectedGain>,
            .weighs_costs = true};
}

} // namespace entrodraft::spec
