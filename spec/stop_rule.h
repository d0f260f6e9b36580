// When to stop drafting: the rules, as pure state machines over what the draft model says of itself.
//
// x_t is the entropy, in nats, of the draft's unadjusted next-token distribution at the t-th token of the
// running drafting phase; t = 1 is its first. The token that fires a threshold rule is kept.
//   static          x_t >= tau
//   moving-average  x_t^2 >= lambda * mean(x_{t-i}^2, i = 1..min(n, t-1)), from t = 2; not where the mean is 0
//   cumulative      sum(x_{t-i}^2, i = 0..min(n, t-1)) >= tau
//   constant        t >= k
//   heuristic       t >= k; k += 2 after full acceptance, else max(1, k - 1); k stays in 1..cap
// The caps --max-draft-tokens and --min-draft-tokens hold for every rule; min_tokens makes a rule look later.
#pragma once

#include "entrodraft/spec/packet.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

enum class StopRuleKind { static_threshold, moving_average, cumulative, constant, heuristic };

std::string to_string(StopRuleKind kind); // "static", "moving-average", ...
std::optional<StopRuleKind> parse_stop_rule(std::string_view name);
const std::vector<StopRuleKind>& all_stop_rules();

struct StopRuleOptions {
    StopRuleKind kind = StopRuleKind::moving_average;
    std::optional<double> threshold; // tau of static [2.25] and cumulative [10], in nats and squared nats
    double factor = 0.5;             // lambda of moving-average
    int window = 7;                  // n of moving-average and cumulative
    int num_draft_tokens = 5;        // k of constant, first k of heuristic
    int min_tokens = 1;              // tokens before which no rule fires
    int max_tokens = 15;             // the cap, also of heuristic's k

    double threshold_or_default() const;
};

// Empty when usable with this rule; else what is wrong, naming the option. Local.
std::string why_invalid(const StopRuleOptions& options);

// How the last round ended, for rules that learn.
struct RoundFeedback {
    int drafted = 0;
    int accepted = 0;
    bool cut_short = false; // by budget, context or end of text: learn nothing from it
};

class StopRule {
  public:
    // Throws std::invalid_argument with why_invalid's words.
    explicit StopRule(const StopRuleOptions& options);

    const StopRuleOptions& options() const { return options_; }
    // Whether should_stop looks at the entropy at all; constant and heuristic do not.
    bool needs_entropy() const;
    void begin_sequence(); // per-sequence state starts afresh
    void begin_round();
    // To be asked once after each drafted token, with the entropy the token was drawn at (ignored unless
    // needs_entropy; NaN where there is none: no rule fires on it and none counts it). True: stop drafting,
    // this token included. Local.
    bool should_stop(double entropy_nats);
    // Why the last should_stop was true: rule or cap; none while it was not. A rule that fires on the cap's
    // token counts as rule.
    DraftEnd end() const { return end_; }
    // Whether the last true of should_stop came from a threshold rule, so that --drop-stop-token applies.
    bool is_threshold_rule() const { return needs_entropy() && end_ == DraftEnd::rule; }
    void end_round(const RoundFeedback& feedback);

  private:
    bool entropy_fires() const;

    StopRuleOptions options_;
    std::vector<double> squares_; // x_t^2 of this drafting phase
    int drafted_ = 0;             // t
    int k_ = 0;                   // constant's length, heuristic's current one
    DraftEnd end_ = DraftEnd::none;
};

} // namespace entrodraft::spec
