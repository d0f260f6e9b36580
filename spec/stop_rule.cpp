// The stop rules: pure state machines, no clock, no model. See stop_rule.h for the formulas.
#include "entrodraft/spec/stop_rule.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr double kStaticThreshold = 2.25;   // nats
constexpr double kCumulativeThreshold = 10; // squared nats

bool takes_threshold(StopRuleKind kind) {
    return kind == StopRuleKind::static_threshold || kind == StopRuleKind::cumulative;
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
    }
    throw std::invalid_argument("stop rule number " + std::to_string(static_cast<int>(kind)) + " is unknown");
}

std::optional<StopRuleKind> parse_stop_rule(std::string_view name) {
    for (const StopRuleKind kind : all_stop_rules())
        if (to_string(kind) == name) return kind;
    return std::nullopt;
}

const std::vector<StopRuleKind>& all_stop_rules() {
    static const std::vector<StopRuleKind> all = {StopRuleKind::static_threshold, StopRuleKind::moving_average,
                                                  StopRuleKind::cumulative, StopRuleKind::constant,
                                                  StopRuleKind::heuristic};
    return all;
}

double StopRuleOptions::threshold_or_default() const {
    return threshold.value_or(kind == StopRuleKind::cumulative ? kCumulativeThreshold : kStaticThreshold);
}

std::string why_invalid(const StopRuleOptions& options) {
    if (options.threshold && !takes_threshold(options.kind))
        return "--entropy-threshold has no meaning for --stop-rule " + to_string(options.kind) +
               "; leave it out or choose static or cumulative";
    if (options.threshold && !(std::isfinite(*options.threshold) && *options.threshold >= 0))
        return "--entropy-threshold must be a number that is not negative";
    if (!(std::isfinite(options.factor) && options.factor > 0)) return "--entropy-factor must be a number above 0";
    if (options.window < 1) return "--entropy-window must be at least 1, not " + std::to_string(options.window);
    if (options.num_draft_tokens < 1)
        return "--num-draft-tokens must be at least 1, not " + std::to_string(options.num_draft_tokens);
    if (options.max_tokens < 1 || options.max_tokens > Packet::kMostDraftTokens)
        return "--max-draft-tokens must be 1 to " + std::to_string(Packet::kMostDraftTokens) + ", not " +
               std::to_string(options.max_tokens);
    if (options.min_tokens < 1 || options.min_tokens > options.max_tokens)
        return "--min-draft-tokens must be 1 to --max-draft-tokens (" + std::to_string(options.max_tokens) + "), not " +
               std::to_string(options.min_tokens);
    return {};
}

StopRule::StopRule(const StopRuleOptions& options) : options_(options) {
    const std::string reason = why_invalid(options);
    if (!reason.empty()) throw std::invalid_argument(reason);
    squares_.reserve(static_cast<std::size_t>(options.max_tokens));
    begin_sequence();
}

bool StopRule::needs_entropy() const {
    return options_.kind == StopRuleKind::static_threshold || options_.kind == StopRuleKind::moving_average ||
           options_.kind == StopRuleKind::cumulative;
}

void StopRule::begin_sequence() {
    k_ = std::min(options_.num_draft_tokens, options_.max_tokens);
    begin_round();
}

void StopRule::begin_round() {
    squares_.clear();
    drafted_ = 0;
    end_ = DraftEnd::none;
}

bool StopRule::should_stop(double entropy_nats) {
    ++drafted_;
    bool fires = false;
    if (!needs_entropy()) {
        fires = drafted_ >= k_;
    } else if (!std::isnan(entropy_nats)) {
        squares_.push_back(entropy_nats * entropy_nats);
        fires = entropy_fires();
    }
    if (fires && drafted_ >= options_.min_tokens)
        end_ = DraftEnd::rule;
    else
        end_ = drafted_ >= options_.max_tokens ? DraftEnd::cap : DraftEnd::none;
    return end_ != DraftEnd::none;
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
        return before > 0 && earlier > 0 && latest >= options_.factor * earlier / static_cast<double>(before);
    case StopRuleKind::cumulative:
        return earlier + latest >= options_.threshold_or_default();
    case StopRuleKind::constant:
    case StopRuleKind::heuristic:
        break;
    }
    return false;
}

void StopRule::end_round(const RoundFeedback& feedback) {
    if (options_.kind != StopRuleKind::heuristic || feedback.cut_short || feedback.drafted == 0) return;
    const int k = feedback.accepted == feedback.drafted ? k_ + 2 : k_ - 1;
    k_ = std::clamp(k, 1, options_.max_tokens);
}

} // namespace entrodraft::spec
