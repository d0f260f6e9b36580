// When to stop drafting: the rules, as pure state machines over what the draft model says of itself.
//
// x_t is the entropy, in nats, of the draft's next-token distribution (EntropyOf) at the t-th token of the running
// drafting phase, c_t the drafted token's probability in it; t = 1 is its first. The token that fires a
// threshold rule is kept.
//   static          x_t >= tau
//   moving-average  x_t^2 >= lambda * mean(x_{t-i}^2, i = 1..min(n, t-1)), from t = 2
//   cumulative      sum(x_{t-i}^2, i = 0..min(n, t-1)) >= tau
//   constant        t >= k
//   heuristic       t >= k; k += 2 after full acceptance, else max(1, k - 1); k stays in 1..cap. Persistent: k goes on
//                   from text to text and up to 127, and rounds cut short count as not fully accepted
//   adaptive        the same with k += 1, from 3
//   confidence      c_t < c
//   svip            sqrt(0.15 x_t) > h (Zhang et al. 2024, "Draft Model Knows When to Stop")
//   adaedl          1 - sqrt(gamma x_t) < lambda (Agrawal et al. 2024), lambda learnt from the acceptance so far
//   expected-gain   drafts while further tokens are expected to come faster than the run's own rate (gain_model.h):
//                   another pass where for some k' up to the cap (expected further tokens) / (their draft and target
//                   seconds) exceeds it. A token that was looked up, not drawn, is dropped where
//                   S_t / (t_target(t + 1) - t_target(t)) does not, S_t being the probability that all t stand
// The caps --max-draft-tokens and --min-draft-tokens hold for every rule; min_tokens makes a rule look later.
#pragma once

#include "model/logit_needs.h"
#include "spec/packet.h"
#include "spec/stop/gain_model.h"

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

enum class StopRuleKind {
    static_threshold,
    moving_average,
    cumulative,
    constant,
    heuristic,
    adaptive,
    confidence,
    svip,
    adaedl,
    expected_gain
};

std::string to_string(StopRuleKind kind); // "static", "moving-average", ...
std::optional<StopRuleKind> parse_stop_rule(std::string_view name);
const std::vector<StopRuleKind>& all_stop_rules();

// The distribution whose entropies and probabilities rules look at: the softmax at temperature 1 after hard bans alone,
// or the one that tokens are drawn from, after penalties, temperature and filters (greedy: penalties alone, at 1).
enum class EntropyOf { raw, adjusted };

struct StopRuleOptions {
    StopRuleKind kind = StopRuleKind::moving_average;
    std::optional<double> threshold;     // tau of static [2.25] and cumulative [10], in nats and squared nats
    double factor = 0.5;                 // lambda of moving-average
    int window = 7;                      // n of moving-average and cumulative
    std::optional<int> num_draft_tokens; // k of constant [5]; first k of heuristic [5] and adaptive [3]
    bool persistent = false;             // heuristic: whether k goes on from text to text
    double confidence = 0.4;             // c
    double svip_threshold = 0.3;         // h
    double adaedl_gamma = 0.2;           // gamma
    EntropyOf entropy_of = EntropyOf::raw;
    bool drop_stop_token = false; // whether the token that fires a threshold rule is not proposed
    int min_tokens = 1;           // tokens before which no rule fires
    int max_tokens = 15;          // the cap, also of k where it moves, unless persistent

    double threshold_or_default() const;
    int num_draft_tokens_or_default() const;
};

// Empty when usable with this rule; else what is wrong, naming the option. Local.
std::string why_invalid(const StopRuleOptions& options);

// What drafting on costs, in draft passes: none for a look-up; the pass of a cascade's middle model brings several
// tokens.
struct PassCost {
    double next = 1; // of what has to be done now
    double each = 1; // of a token, on average
};

// How the last round ended, for rules that learn.
struct RoundFeedback {
    int drafted = 0;
    int accepted = 0;
    bool cut_short = false; // by budget, context or end of text: k and lambda stay as they are
    double draft_seconds = 0;
    double target_seconds = 0; // of everything in the round but drafting
    Company company = {};      // of the target's pass
};

enum class Judgement {
    go_on,
    stop, // the token is the last
    drop, // and is not proposed
};

class StopRule {
  public:
    // `gain` is needed by expected-gain and persistent rules, shared by a replica's sequences and outlives the rule.
    // Throws std::invalid_argument with why_invalid's words.
    explicit StopRule(const StopRuleOptions& options, GainModel* gain = nullptr);

    const StopRuleOptions& options() const { return options_; }
    // Whether judge looks at the token's distribution at all; rules that count do not.
    bool needs_distribution() const;
    // Whether it is the adjusted one. Local.
    bool needs_adjusted() const { return needs_distribution() && options_.entropy_of == EntropyOf::adjusted; }
    void begin_sequence(); // per-sequence state starts afresh
    void begin_round();
    // Of the pass to come, as far as is known; it stands until it is set again. Local.
    void set_company(const Company& company) { company_ = company; }
    // Whether another draft pass is worth its time; to be asked before each. Only expected-gain ever says no. Local.
    bool wants_another(const PassCost& cost = {});
    // The pass that was wanted cost so much more, in draft passes: fewer share it than were asked. Local.
    void charge(double passes) { passes_ += passes; }
    // How far a chain that begins with the next token is likely to go, at most `most` rows, for a device that goes on
    // by itself: what it makes too many of is dropped, what it makes too few of is asked for again. Local.
    model::Chain forecast(int most) const;
    // To be asked once after each drafted token. Local.
    Judgement judge(const DraftedToken& token);
    // Why the last answer was to stop: rule or cap; none while it was not. A rule that fires on the cap's
    // token counts as rule.
    DraftEnd end() const { return end_; }
    // Learns from the round, for this sequence and, with expected-gain, for all of the replica. Local.
    void end_round(const RoundFeedback& feedback);
    // What end_round does to this sequence's own state, teaching nothing else: for rounds that are only foreseen.
    // Local.
    void settle(const RoundFeedback& feedback);

  private:
    bool fires(const DraftedToken& token);
    bool entropy_fires() const;
    double rate() const;
    double target_seconds(int rows) const; // of a pass with so many rows of this sequence
    void forecast_gain(model::Chain& chain) const;
    bool another_pays(const PassCost& cost, double acceptance) const;
    bool wants_probe(const PassCost& cost);
    bool last_pays() const;
    void update_luck(std::size_t accepted, std::size_t drafted);

    StopRuleOptions options_;
    GainModel* gain_;
    std::vector<double> squares_;      // x_t^2 of this drafting phase, where known
    std::vector<DraftedToken> tokens_; // of this drafting phase
    std::vector<double> acceptances_;  // expected-gain: a_t
    double all_stand_ = 1;             // a_1 a_2 ... of all of them
    double expected_tokens_ = 1;       // 1 + a_1 + a_1 a_2 + ...
    double luck_ = 0;                  // expected-gain: how much better tokens stand in this text than expected
    Company company_;                  // of the pass to come
    int drafted_ = 0;                  // t
    double passes_ = 0;                // draft passes of this drafting phase
    int k_ = 0;                        // constant's length, heuristic's and adaptive's current one
    double lambda_ = 0;                // adaedl
    double acceptance_rate_ = 0;       // adaedl, smoothed
    int plain_rounds_ = -1;            // expected-gain: rounds of this text since anything was drafted; -1: none yet
    bool asked_ = false;               // whether there was anything to draft in this round
    bool probes_ = false;              // expected-gain: this round drafts one token to learn from
    bool is_near_ = false;             // expected-gain: where it does not draft, little is missing
    DraftEnd end_ = DraftEnd::none;
};

} // namespace entrodraft::spec
