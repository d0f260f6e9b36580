// expected-gain: drafts while further tokens are expected to come faster than the run's own rate.
//
// Source: this project (docs/reference.md, expected-gain); what it learns is in gain_model.h.
// Formula: another pass where for some k' up to the cap (expected further tokens) / (their draft and target seconds)
// exceeds the run's tokens a second. A token that was looked up, not drawn, is dropped where S_t / (t_target(t + 1) -
// t_target(t)) does not, S_t being the probability that all t are accepted.
// On a device: the least S_t, for each t, at which another pass pays.
#include "spec/stop/stop_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace entrodraft::spec {

namespace {

class ExpectedGain final : public StopCondition {
  public:
    ExpectedGain(const StopRuleOptions& options, GainModel* gain) : cap_(options.max_tokens), gain_(gain) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<ExpectedGain>(*this); }
    void begin_sequence() override;
    void begin_round() override;
    bool fires(const Drafting& drafting) override;
    bool drops_fired_token() const override { return true; }
    int tokens_to_read(const Drafting& drafting) override;
    bool wants_another(const Drafting& drafting, const PassCost& cost) override;
    void forecast(const Drafting& drafting, DeviceStopRule& rule) const override;
    void settle(const Drafting& drafting, const RoundFeedback& round) override;
    void end_round(const Drafting& drafting, const RoundFeedback& round) override;

  private:
    double rate(const Drafting& drafting) const;
    double target_seconds(const Drafting& drafting, int rows) const; // of a pass with so many rows of this sequence
    bool another_pays(const Drafting& drafting, const PassCost& cost, double acceptance) const;
    bool catching_up_pays(const Drafting& drafting, const PassCost& cost) const;
    bool reads_all(const Drafting& drafting) const;
    bool wants_probe(const Drafting& drafting, const PassCost& cost);
    bool last_pays(const Drafting& drafting) const;
    void update_residual(const Drafting& drafting, std::size_t accepted, std::size_t drafted);

    int cap_;
    GainModel* gain_;
    std::vector<double> acceptances_; // a_t of this drafting phase
    double all_stand_ = 1;            // a_1 a_2 ... of all of them
    double expected_tokens_ = 1;      // 1 + a_1 + a_1 a_2 + ...
    double residual_ = 0;             // how much more often tokens of this text are accepted than expected
    int plain_rounds_ = -1;           // rounds of this text since anything was drafted; -1: none yet
    bool probes_ = false;             // this round drafts one token to learn from
    bool is_near_ = false;            // where it does not draft, little is missing
    std::optional<Reading> wanted_;   // of this text, if it is long
    std::optional<Reading> reading_;  // that, once it was read
};

void ExpectedGain::begin_sequence() {
    residual_ = 0;
    plain_rounds_ = -1;
    wanted_ = reading_ = std::nullopt;
}

void ExpectedGain::begin_round() {
    acceptances_.clear();
    all_stand_ = expected_tokens_ = 1;
    probes_ = false;
}

// A drawn token is never dropped: its acceptance looks at the token itself, and choosing by it would bias `rejection`.
bool ExpectedGain::fires(const Drafting& drafting) {
    acceptances_.push_back(gain_->acceptance(drafting.tokens.back(), residual_));
    expected_tokens_ += all_stand_ *= acceptances_.back();
    return std::isnan(drafting.entropy()) && !probes_ && !last_pays(drafting);
}

bool ExpectedGain::wants_another(const Drafting& drafting, const PassCost& cost) {
    const bool begins = drafting.drafted() == 0;
    const bool reads = drafting.passes == 0 && cost.next > 0; // not for tokens that need no pass
    const bool drafting_pays = another_pays(drafting, cost, gain_->mean_acceptance());
    const bool pays = drafting_pays && (!reads || catching_up_pays(drafting, cost));
    const bool probes = !pays && begins && wants_probe(drafting, cost);
    if (!pays && !probes) {
        if (begins) gain_->decline(drafting.batch_load.sequences, drafting_pays);
        return false;
    }
    if (begins && !gain_->may_begin(drafting.batch_load)) return false;
    probes_ = probes_ || probes;
    return true;
}

// ---- whether drafting on pays ----

// Tokens a second that drafting on has to beat: the run's, or, while that is not known, this round's own.
double ExpectedGain::rate(const Drafting& drafting) const {
    if (const double known = gain_->tokens_per_second(); known > 0) return known;
    const double target = target_seconds(drafting, drafting.drafted() + 1) / drafting.batch_load.sequences;
    return expected_tokens_ / (gain_->draft_seconds(drafting.passes, drafting.further_rows) + target);
}

double ExpectedGain::target_seconds(const Drafting& drafting, int rows) const {
    return gain_->target_seconds(rows + drafting.batch_load.rows_beside);
}

// Whether another pass pays if each token to come is accepted with probability `acceptance`.
bool ExpectedGain::another_pays(const Drafting& drafting, const PassCost& cost, double acceptance) const {
    const int drafted = drafting.drafted();
    const double needed = rate(drafting);
    const double spent = gain_->draft_seconds(drafting.passes), scored = target_seconds(drafting, drafted + 1);
    const double all_behind = acceptance < 1 ? acceptance / (1 - acceptance) : std::numeric_limits<double>::infinity();
    double tokens = 0, product = all_stand_;
    for (int k = drafted + 1; k <= cap_; ++k) {
        tokens += product *= acceptance;
        const double drafting_on = (k - drafted) * cost.each;
        const double passes = drafting.passes + std::max(cost.next, drafting_on);
        const double seconds = gain_->draft_seconds(passes) - spent + target_seconds(drafting, k + 1) - scored;
        if (tokens > needed * seconds) return true;
        if (tokens + product * all_behind <= needed * seconds) return false; // nor does any more, which take longer
    }
    return false;
}

// Whether what drafting is expected to save in all that is left of the text exceeds the time in which the draft reads
// what it has not read of it: at first the prompt. The other texts are taken to draft alike, for whatever rows are
// cheap they share; so are those whose prompts are still to be read, for they will be beside most of the rounds to
// come.
bool ExpectedGain::catching_up_pays(const Drafting& drafting, const PassCost& cost) const {
    const double seconds = gain_->catch_up_seconds(drafting.unread);
    if (seconds <= 0) return true;
    const int texts = std::max(drafting.batch_load.sequences, drafting.texts);
    const auto pass_seconds = [&](int rows) { return gain_->target_seconds(rows * texts) / texts; };
    const double plain = pass_seconds(1);
    double best = plain, tokens = 1, product = 1; // best: seconds a token
    for (int k = 1; k <= cap_ && (k == 1 || (k + 1) * texts <= gain_->max_rows()); ++k) {
        tokens += product *= gain_->mean_acceptance();
        const double drafting_on = gain_->draft_seconds(std::max(cost.next, k * cost.each));
        best = std::min(best, (drafting_on + pass_seconds(k + 1)) / tokens);
    }
    return gain_->expected_left(drafting.left) * (plain - best) > seconds;
}

int ExpectedGain::tokens_to_read(const Drafting& drafting) {
    if (!GainModel::is_long(drafting.unread) || gain_->catch_up_seconds(drafting.unread) <= 0) return drafting.unread;
    wanted_ = reads_all(drafting) ? Reading::all : Reading::end;
    return wanted_ == Reading::all ? drafting.unread : GainModel::kEnd;
}

// Whether what the beginning of a long text brings exceeds the time of reading it. It is read to learn that, where the
// run affords it and it could pay if tokens then took no time; not for a draft of which nothing is known.
bool ExpectedGain::reads_all(const Drafting& drafting) const {
    constexpr PassCost kOwn = {};
    const double more = gain_->catch_up_seconds(drafting.unread) - gain_->catch_up_seconds(GainModel::kEnd);
    const double left = gain_->expected_left(drafting.left);
    const double by_all = gain_->seconds_per_token(Reading::all), by_end = gain_->seconds_per_token(Reading::end);
    return left * (by_end - by_all) > more && (by_all > 0 || gain_->affords(more)) && catching_up_pays(drafting, kOwn);
}

// Where drafting does not pay as far as is known, a token is drafted now and then to learn whether that still holds:
// when a text begins, and after more and more rounds within it, for the draft first has to read all tokens emitted
// meanwhile, and no more often than the run affords. Not where drafting could not pay if every token were accepted. A
// text alone is asked again soon, and always, where little is missing: a probe then costs next to nothing, and a bad
// stretch is not to decide for all that follows.
bool ExpectedGain::wants_probe(const Drafting& drafting, const PassCost& cost) {
    constexpr double kNear = 1.25; // times the mean acceptance
    constexpr int kNearGap = 4;
    is_near_ = drafting.batch_load.sequences == 1 &&
               another_pays(drafting, cost, std::min(1.0, kNear * gain_->mean_acceptance()));
    const bool is_due = plain_rounds_ < 0 || plain_rounds_ >= (is_near_ ? kNearGap : gain_->probe_gap());
    if (!is_due) return false;
    const double reading = gain_->catch_up_seconds(drafting.unread);
    if (!gain_->knows_draft_cost()) return gain_->affords(reading);
    const double rows = target_seconds(drafting, 2) - target_seconds(drafting, 1);
    return gain_->affords(reading + gain_->draft_seconds(cost.next) + rows) && another_pays(drafting, cost, 1);
}

// Whether the token just drafted is worth its row in the target's pass.
bool ExpectedGain::last_pays(const Drafting& drafting) const {
    const int drafted = drafting.drafted();
    const double seconds = target_seconds(drafting, drafted + 1) - target_seconds(drafting, drafted);
    return all_stand_ > rate(drafting) * seconds;
}

// another_pays() as thresholds: after t tokens, the least product of acceptances at which another pass pays.
void ExpectedGain::forecast(const Drafting& drafting, DeviceStopRule& rule) const {
    const double needed = gain_->tokens_per_second(), acceptance = gain_->mean_acceptance();
    if (needed <= 0 || probes_) { // a row at a time
        rule.max_rows = 1;
        return;
    }
    rule.kind = DeviceStopRule::Kind::gain;
    std::ranges::copy(gain_->line(residual_), rule.weights);
    const int most = std::min({rule.max_rows, cap_ - drafting.drafted(), DeviceStopRule::kMaxLeast});
    rule.max_rows = std::max(1, most);
    for (int t = 1; t < most; ++t) {
        const int drafted = drafting.drafted() + t;
        const double spent = gain_->draft_seconds(drafted), scored = target_seconds(drafting, drafted + 1);
        double least = std::numeric_limits<float>::max(), tokens = 0, product = all_stand_;
        for (int k = drafted + 1; k <= cap_; ++k) {
            tokens += product *= acceptance;
            const double seconds = gain_->draft_seconds(k) - spent + target_seconds(drafting, k + 1) - scored;
            least = std::min(least, needed * seconds / tokens);
        }
        rule.least[t - 1] = static_cast<float>(least);
    }
}

// ---- learning ----

// Follows how much more often than expected drawn tokens were accepted; those after the first rejected one were not
// verified.
void ExpectedGain::update_residual(const Drafting& drafting, std::size_t accepted, std::size_t drafted) {
    constexpr double kStep = 0.1;
    for (std::size_t i = 0; i < std::min(drafted, accepted + 1); ++i)
        if (!std::isnan(drafting.tokens[i].entropy_nats))
            residual_ += kStep * ((i < accepted ? 1 : 0) - acceptances_[i]);
}

// Whether the draft has so much to read that it drafts in a later round.
bool reads_on(const RoundFeedback& round) {
    return round.drafted == 0 && round.caught_up > 0;
}

void ExpectedGain::end_round(const Drafting& drafting, const RoundFeedback& round) {
    const auto drafted = std::min(drafting.tokens.size(), static_cast<std::size_t>(round.drafted));
    if (round.caught_up > 0) reading_ = wanted_;
    gain_->learn({std::span(drafting.tokens).first(drafted), residual_, round.accepted, drafting.passes,
                  round.draft_seconds, round.target_seconds, round.batch_load, round.rows, round.emitted,
                  drafting.further_rows, round.caught_up, round.catch_up_seconds, reading_});
    if (!reads_on(round) && (probes_ ? !is_near_ : round.drafted > 0)) gain_->drafted(probes_);
    settle(drafting, round);
}

void ExpectedGain::settle(const Drafting& drafting, const RoundFeedback& round) {
    const auto drafted = std::min(drafting.tokens.size(), static_cast<std::size_t>(round.drafted));
    update_residual(drafting, static_cast<std::size_t>(round.accepted), drafted);
    if (round.drafted > 0)
        plain_rounds_ = 0;
    else if (drafting.asked && !reads_on(round))
        plain_rounds_ = std::max(plain_rounds_, 0) + 1;
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
