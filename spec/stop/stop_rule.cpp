// The stop rules: pure state machines, no clock, no model. See stop_rule.h for the formulas.
#include "spec/stop/stop_rule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr double kStaticThreshold = 2.25;   // nats
constexpr double kCumulativeThreshold = 10; // squared nats
constexpr double kSvipFactor = 0.15;        // the paper's c: cross-entropy's share of the entropy
constexpr double kAdaedlLambda = 0.6;       // first lambda

bool takes_threshold(StopRuleKind kind) {
    return kind == StopRuleKind::static_threshold || kind == StopRuleKind::cumulative;
}

bool counts_tokens(StopRuleKind kind) {
    return kind == StopRuleKind::constant || kind == StopRuleKind::heuristic || kind == StopRuleKind::adaptive;
}

} // namespace

std::string to_string(StopRuleKind kind) {
    switch (kind) {
    case StopRuleKind::static_threshold:
        return "static";
    case StopRuleKind::moving_average:
        return "moving-average";
    case StopRuleKind::cumulative:
        return "cumulative";
    case StopRuleKind::constant:
        return "constant";
    case StopRuleKind::heuristic:
        return "heuristic";
    case StopRuleKind::adaptive:
        return "adaptive";
    case StopRuleKind::confidence:
        return "confidence";
    case StopRuleKind::svip:
        return "svip";
    case StopRuleKind::adaedl:
        return "adaedl";
    case StopRuleKind::expected_gain:
        return "expected-gain";
    }
    throw std::invalid_argument("stop rule number " + std::to_string(static_cast<int>(kind)) + " is unknown");
}

std::optional<StopRuleKind> parse_stop_rule(std::string_view name) {
    for (const StopRuleKind kind : all_stop_rules())
        if (to_string(kind) == name) return kind;
    return std::nullopt;
}

const std::vector<StopRuleKind>& all_stop_rules() {
    using enum StopRuleKind;
    static const std::vector<StopRuleKind> all = {static_threshold, moving_average, cumulative, constant,
                                                  heuristic,        adaptive,       confidence, svip,
                                                  adaedl,           expected_gain};
    return all;
}

double StopRuleOptions::threshold_or_default() const {
    return threshold.value_or(kind == StopRuleKind::cumulative ? kCumulativeThreshold : kStaticThreshold);
}

int StopRuleOptions::num_draft_tokens_or_default() const {
    return num_draft_tokens.value_or(kind == StopRuleKind::adaptive ? 3 : 5);
}

std::string why_invalid(const StopRuleOptions& options) {
    if (options.threshold && !takes_threshold(options.kind))
        return "--entropy-threshold has no meaning for --stop-rule " + to_string(options.kind) +
               "; leave it out or choose static or cumulative";
    if (options.threshold && !(std::isfinite(*options.threshold) && *options.threshold >= 0))
        return "--entropy-threshold must be a number that is not negative";
    if (!(std::isfinite(options.factor) && options.factor > 0)) return "--entropy-factor must be a number above 0";
    if (options.window < 1) return "--entropy-window must be at least 1, not " + std::to_string(options.window);
    if (options.num_draft_tokens.value_or(1) < 1)
        return "--num-draft-tokens must be at least 1, not " + std::to_string(*options.num_draft_tokens);
    if (options.persistent && options.kind != StopRuleKind::heuristic)
        return "--heuristic-persistent has no meaning for --stop-rule " + to_string(options.kind);
    if (options.drop_stop_token && options.kind == StopRuleKind::confidence) // it looks at the token itself
        return "--drop-stop-token with --stop-rule confidence would bias rejection sampling; leave it out";
    if (!(options.confidence >= 0 && options.confidence <= 1)) return "--confidence-threshold must be from 0 to 1";
    if (!(std::isfinite(options.svip_threshold) && options.svip_threshold >= 0))
        return "--svip-threshold must be a number that is not negative";
    if (!(std::isfinite(options.adaedl_gamma) && options.adaedl_gamma > 0))
        return "--adaedl-gamma must be a number above 0";
    if (options.max_tokens < 1 || options.max_tokens > Packet::kMostDraftTokens)
        return "--max-draft-tokens must be 1 to " + std::to_string(Packet::kMostDraftTokens) + ", not " +
               std::to_string(options.max_tokens);
    if (options.min_tokens < 1 || options.min_tokens > options.max_tokens)
        return "--min-draft-tokens must be 1 to --max-draft-tokens (" + std::to_string(options.max_tokens) + "), not " +
               std::to_string(options.min_tokens);
    return {};
}

StopRule::StopRule(const StopRuleOptions& options, GainModel* gain) : options_(options), gain_(gain) {
    const std::string reason = why_invalid(options);
    if (!reason.empty()) throw std::invalid_argument(reason);
    if (options.kind == StopRuleKind::expected_gain && gain == nullptr)
        throw std::invalid_argument("the rule expected-gain needs a gain model");
    if (options.persistent && gain == nullptr)
        throw std::invalid_argument("a persistent rule needs what its replica has learnt");
    begin_sequence();
}

bool StopRule::needs_distribution() const {
    return !counts_tokens(options_.kind);
}

void StopRule::begin_sequence() {
    k_ = std::min(options_.num_draft_tokens_or_default(), options_.max_tokens);
    if (options_.persistent) k_ = gain_->kept_draft_tokens().value_or(k_);
    lambda_ = kAdaedlLambda;
    acceptance_rate_ = 0;
    luck_ = 0;
    plain_rounds_ = -1;
    begin_round();
}

void StopRule::begin_round() {
    squares_.clear();
    tokens_.clear();
    acceptances_.clear();
    all_stand_ = expected_tokens_ = 1;
    drafted_ = 0;
    passes_ = 0;
    probes_ = false;
    asked_ = false;
    end_ = DraftEnd::none;
}

bool StopRule::wants_another(const PassCost& cost) {
    asked_ = true;
    const bool may_stop = drafted_ >= options_.min_tokens || options_.min_tokens == 1;
    if (options_.kind == StopRuleKind::expected_gain && may_stop) {
        const bool pays = another_pays(cost, gain_->mean_acceptance());
        const bool probes = !pays && drafted_ == 0 && wants_probe(cost);
        if (!pays && !probes) {
            end_ = DraftEnd::rule;
            return false;
        }
        probes_ = probes_ || probes;
    }
    passes_ += cost.next;
    return true;
}

model::Chain StopRule::forecast(int most) const {
    using Kind = model::ChainStop::Kind;
    model::Chain chain = {std::max(1, most), {}};
    model::ChainStop& stop = chain.stop;
    stop.first = std::max(1, options_.min_tokens - drafted_);
    stop.window = options_.window;
    stop.factor = options_.factor;
    switch (options_.kind) {
    case StopRuleKind::static_threshold:
        stop.kind = Kind::entropy;
        stop.threshold = options_.threshold_or_default();
        break;
    case StopRuleKind::moving_average:
        stop.kind = Kind::moving_average;
        break;
    case StopRuleKind::cumulative:
        stop.kind = Kind::squares;
        stop.threshold = options_.threshold_or_default();
        break;
    case StopRuleKind::constant:
    case StopRuleKind::heuristic:
    case StopRuleKind::adaptive:
        chain.most_rows = std::clamp(std::max(k_, options_.min_tokens) - drafted_, 1, chain.most_rows);
        break;
    case StopRuleKind::confidence:
        stop.kind = Kind::probability;
        stop.threshold = options_.confidence;
        break;
    case StopRuleKind::svip:
        stop.kind = Kind::entropy;
        stop.threshold = options_.svip_threshold * options_.svip_threshold / kSvipFactor;
        break;
    case StopRuleKind::adaedl:
        stop.kind = Kind::entropy;
        stop.threshold = std::pow(std::max(0.0, 1 - lambda_), 2) / options_.adaedl_gamma;
        break;
    case StopRuleKind::expected_gain:
        forecast_gain(chain);
        break;
    }
    return chain;
}

Judgement StopRule::judge(const DraftedToken& token) {
    ++drafted_;
    tokens_.push_back(token);
    const bool fired = fires(token);
    if (fired && drafted_ >= options_.min_tokens) {
        end_ = DraftEnd::rule;
        const bool drops =
            options_.kind == StopRuleKind::expected_gain || (options_.drop_stop_token && needs_distribution());
        return drops ? Judgement::drop : Judgement::stop;
    }
    end_ = drafted_ >= options_.max_tokens ? DraftEnd::cap : DraftEnd::none;
    return end_ == DraftEnd::none ? Judgement::go_on : Judgement::stop;
}

bool StopRule::fires(const DraftedToken& token) {
    if (counts_tokens(options_.kind)) return drafted_ >= k_;
    const auto x = static_cast<double>(token.entropy_nats);
    if (options_.kind == StopRuleKind::expected_gain) {
        acceptances_.push_back(gain_->acceptance(token, luck_));
        expected_tokens_ += all_stand_ *= acceptances_.back();
        // A drawn token is never dropped: its acceptance looks at the token itself, and choosing by it would bias
        // `rejection`.
        return std::isnan(x) && !probes_ && !last_pays();
    }
    if (std::isnan(x)) return false;
    switch (options_.kind) {
    case StopRuleKind::confidence:
        return static_cast<double>(token.probability) < options_.confidence;
    case StopRuleKind::svip:
        return std::sqrt(kSvipFactor * x) > options_.svip_threshold;
    case StopRuleKind::adaedl:
        return 1 - std::sqrt(options_.adaedl_gamma * x) < lambda_;
    default:
        squares_.push_back(x * x);
        return entropy_fires();
    }
}

// Whether the last of squares_, x_t^2, is high against the threshold or the ones before it.
bool StopRule::entropy_fires() const {
    const auto before = std::min(squares_.size() - 1, static_cast<std::size_t>(options_.window)); // min(n, t-1)
    const double latest = squares_.back();
    const double earlier =
        std::accumulate(squares_.end() - 1 - static_cast<std::ptrdiff_t>(before), squares_.end() - 1, 0.0);
    switch (options_.kind) {
    case StopRuleKind::static_threshold:
        return std::sqrt(latest) >= options_.threshold_or_default();
    case StopRuleKind::moving_average:
        return before > 0 && latest >= options_.factor * earlier / static_cast<double>(before);
    case StopRuleKind::cumulative:
        return earlier + latest >= options_.threshold_or_default();
    default:
        return false;
    }
}

// ---- expected-gain ----

// Tokens a second that drafting on has to beat: the run's, or, while that is not known, this round's own.
double StopRule::rate() const {
    if (const double known = gain_->tokens_per_second(); known > 0) return known;
    return expected_tokens_ / (gain_->draft_seconds(passes_) + target_seconds(drafted_ + 1) / company_.sequences);
}

double StopRule::target_seconds(int rows) const {
    return gain_->target_seconds(rows + company_.rows_beside);
}

// Whether another pass pays if each token to come stands with probability `acceptance`.
bool StopRule::another_pays(const PassCost& cost, double acceptance) const {
    const double needed = rate();
    const double spent = gain_->draft_seconds(passes_), scored = target_seconds(drafted_ + 1);
    const double each_seconds = gain_->draft_seconds(1 + cost.each) - gain_->draft_seconds(1);
    double tokens = 0, product = all_stand_;
    for (int k = drafted_ + 1; k <= options_.max_tokens; ++k) {
        tokens += product *= acceptance;
        const double drafting = (k - drafted_) * cost.each, passes = passes_ + std::max(cost.next, drafting);
        const double seconds = gain_->draft_seconds(passes) - spent + target_seconds(k + 1) - scored;
        if (tokens > needed * seconds) return true;
        // Once a token brings less than its draft pass takes, so does every one behind it.
        const bool costs_each = drafting >= cost.next && passes >= 1;
        if (costs_each && product * acceptance < needed * each_seconds) return false;
    }
    return false;
}

// another_pays() as thresholds: after t tokens, the least product of acceptances at which another pass pays.
void StopRule::forecast_gain(model::Chain& chain) const {
    const double needed = gain_->tokens_per_second(), acceptance = gain_->mean_acceptance();
    if (needed <= 0 || probes_) { // a row at a time
        chain.most_rows = 1;
        return;
    }
    chain.stop.kind = model::ChainStop::Kind::gain;
    const std::array<double, 3> weights = gain_->weights(luck_);
    std::copy(weights.begin(), weights.end(), chain.stop.weights);
    const int most = std::min({chain.most_rows, options_.max_tokens - drafted_, model::ChainStop::kMostLeast});
    chain.most_rows = std::max(1, most);
    for (int t = 1; t < most; ++t) {
        const int drafted = drafted_ + t;
        const double spent = gain_->draft_seconds(drafted), scored = target_seconds(drafted + 1);
        double least = std::numeric_limits<float>::max(), tokens = 0, product = all_stand_;
        for (int k = drafted + 1; k <= options_.max_tokens; ++k) {
            tokens += product *= acceptance;
            const double seconds = gain_->draft_seconds(k) - spent + target_seconds(k + 1) - scored;
            least = std::min(least, needed * seconds / tokens);
        }
        chain.stop.least[t - 1] = static_cast<float>(least);
    }
}

// Where drafting does not pay as far as is known, a token is drafted now and then to learn whether that still holds:
// when a text begins, for the draft has just read the prompt, and after more and more rounds within it, for the draft
// first has to read all that was said meanwhile. Not where drafting could not pay if every token stood. A text alone
// is asked again soon, and always, where little is missing: a probe then costs next to nothing, and a bad stretch is
// not to decide for all that follows.
bool StopRule::wants_probe(const PassCost& cost) {
    constexpr double kNear = 1.25; // times the mean acceptance
    constexpr int kNearGap = 4;
    is_near_ = company_.sequences == 1 && another_pays(cost, std::min(1.0, kNear * gain_->mean_acceptance()));
    const bool is_due = plain_rounds_ < 0 || plain_rounds_ >= (is_near_ ? kNearGap : gain_->probe_gap());
    return is_due && (!gain_->knows_draft_cost() || another_pays(cost, 1));
}

// Whether the token just drafted is worth its row in the target's pass.
bool StopRule::last_pays() const {
    const double seconds = target_seconds(drafted_ + 1) - target_seconds(drafted_);
    return all_stand_ > rate() * seconds;
}

// ---- learning ----

// Follows how much more often than expected drawn tokens stood; those behind the first that fell were not judged.
void StopRule::update_luck(std::size_t accepted, std::size_t drafted) {
    constexpr double kStep = 0.1;
    for (std::size_t i = 0; i < std::min(drafted, accepted + 1); ++i)
        if (!std::isnan(tokens_[i].entropy_nats)) luck_ += kStep * ((i < accepted ? 1 : 0) - acceptances_[i]);
}

void StopRule::end_round(const RoundFeedback& feedback) {
    if (options_.kind == StopRuleKind::expected_gain) {
        const auto drafted = std::min(tokens_.size(), static_cast<std::size_t>(feedback.drafted));
        gain_->learn({std::span(tokens_).first(drafted), luck_, feedback.accepted, passes_, feedback.draft_seconds,
                      feedback.target_seconds, feedback.company});
        if (probes_ ? !is_near_ : feedback.drafted > 0) gain_->drafted(probes_);
    }
    settle(feedback);
    if (options_.persistent) gain_->keep_draft_tokens(k_);
}

void StopRule::settle(const RoundFeedback& feedback) {
    if (options_.kind == StopRuleKind::expected_gain) {
        const auto drafted = std::min(tokens_.size(), static_cast<std::size_t>(feedback.drafted));
        update_luck(static_cast<std::size_t>(feedback.accepted), drafted);
        if (feedback.drafted > 0)
            plain_rounds_ = 0;
        else if (asked_)
            plain_rounds_ = std::max(plain_rounds_, 0) + 1;
        return;
    }
    const bool all = feedback.accepted == feedback.drafted;
    if (options_.persistent && feedback.cut_short) k_ = std::max(1, k_ - 1); // fewer than k were accepted
    if (feedback.cut_short || feedback.drafted == 0) return;
    const int most = options_.persistent ? Packet::kMostDraftTokens : options_.max_tokens;
    if (options_.kind == StopRuleKind::heuristic) k_ = std::clamp(all ? k_ + 2 : k_ - 1, 1, most);
    if (options_.kind == StopRuleKind::adaptive) k_ = std::clamp(all ? k_ + 1 : k_ - 1, 1, most);
    if (options_.kind != StopRuleKind::adaedl) return;
    // As in Draft & Verify (Zhang et al. 2023), from which AdaEDL has it: lambda creeps towards an acceptance rate of
    // 0.9.
    constexpr double kGoal = 0.9, kStep = 0.01, kRateDecay = 0.5, kLambdaDecay = 0.9;
    acceptance_rate_ = kRateDecay * acceptance_rate_ + (1 - kRateDecay) * feedback.accepted / feedback.drafted;
    const double moved = lambda_ + (acceptance_rate_ <= kGoal ? kStep : -kStep);
    lambda_ = kLambdaDecay * lambda_ + (1 - kLambdaDecay) * moved;
}

} // namespace entrodraft::spec
