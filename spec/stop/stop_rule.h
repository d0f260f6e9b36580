// When to stop drafting. Each rule is one file of this folder, NAME.cpp, which holds its paper, formula, parameters,
// tuning grid and form on devices as a StopRuleType; options, help, JSON, grids and tests over all rules are made of
// these.
//
// In the files x_t is the entropy, in nats, of the draft's next-token distribution (EntropyOf) at the t-th token of the
// running drafting phase, c_t the drafted token's probability in it; t = 1 is its first. The token that fires a rule is
// kept. The caps --max-draft-tokens and --min-draft-tokens hold for every rule; min_tokens makes a rule look later.
#pragma once

#include "spec/plan/gain_model.h"
#include "spec/protocol/packet.h"
#include "spec/verify/device_verifier.h"
#include "spec/verify/verify.h"

#include <array>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace entrodraft::spec {

class StopCondition;
struct StopRuleOptions;

// ---- what a rule declares ----

// A number or switch that a rule is set by. Rules may share an option; then they agree in all of it but default, help,
// grid and the kind of entropy.
struct StopRuleParameter {
    enum class Kind {
        number,
        entropy,         // in nats
        squared_entropy, // in nats^2
        whole_number,
        draft_length, // tokens: at most the cap, which lowers the default as well
        on_off,       // 0 or 1
    };
    static constexpr double kUnlimited = 1e300;

    const char* option;      // "entropy-factor": --entropy-factor, and in JSON entropy_factor
    const char* symbol = ""; // of its value in --help and in lists of RULE:NUMBER: "LAMBDA"; of on_off: the word there
    const char* label = "";  // before its value in a setting's name: "factor" in "moving-average, factor 0.5"
    const char* help = "of {}"; // of --help; {} is the rules that have this option with the same words
    Kind kind = Kind::number;
    double default_value = 0;
    double min = 0, max = kUnlimited;
    bool above_min = false;        // min itself is refused
    std::vector<double> grid = {}; // values that tuning begins with; none: the default alone
    const char* aliases = "";      // other names of the option, separated by blanks
    // Of on_off: where it is on, the rule goes on from text to text, and may draft as much as a packet holds.
    bool is_persistence = false;

    bool is_whole() const { return kind == Kind::whole_number || kind == Kind::draft_length || kind == Kind::on_off; }
};

// What a rule looks at besides the number of tokens.
enum class LooksAt {
    nothing,
    distribution, // that the token was drawn from
    token,        // the token itself as well: to drop a drawn one would bias `rejection` (docs/reference.md)
};

using MakeStopCondition = std::unique_ptr<StopCondition> (*)(const StopRuleOptions& options, GainModel* gain);

// What a draft proposed, and how much of it was accepted: an example to learn from.
struct DraftedChain {
    std::vector<DraftedToken> tokens;
    int accepted = 0;
};
using FitStopRule = void (*)(std::span<const DraftedChain> chains, StopRuleOptions& options);

struct StopRuleType {
    std::string name;
    int position = 1000; // in lists; rules of one position by name
    LooksAt looks_at = LooksAt::distribution;
    std::vector<StopRuleParameter> parameters = {}; // in the order of RULE:NUMBER:NUMBER
    MakeStopCondition make = nullptr;
    FitStopRule fit = nullptr; // sets parameters by examples before tuning tries values around them
    // It learns what passes cost, or is told by --costs, and drafts only where that pays. A token that fires it is not
    // proposed, whatever the options say.
    bool weighs_costs = false;
    const char* other_names = ""; // that papers and programs have for it, for messages; separated by blanks

    // -1: it has none.
    int index_of(std::string_view parameter) const;
    // Whether the token that fires may be left out of the draft (--drop-stop-token).
    bool may_drop() const { return looks_at != LooksAt::nothing && !weighs_costs; }
};

// The types in the order of lists. The rules' own functions, as CMake lists them, are called once.
const std::vector<StopRuleType>& all_stop_rules();
const std::vector<std::string>& stop_rule_names();
// nullptr: there is no such rule.
const StopRuleType* find_stop_rule(std::string_view name);

// ---- a rule's setting ----

// The distribution whose entropies and probabilities rules look at: the softmax at temperature 1 after banned tokens
// alone, or the one that tokens are drawn from, after penalties, temperature and filters (greedy: penalties alone, at
// 1).
enum class EntropyOf { raw, adjusted };

// A rule with values of its parameters. Trivially copyable: ranks of one build send it to each other.
struct StopRuleOptions {
    static constexpr std::size_t kMaxParameters = 5; // of a rule
    static constexpr int kDefaultMaxTokens = 15;

    // Parameters that are not named have their default. Throws std::invalid_argument for a rule or parameter that is
    // unknown.
    StopRuleOptions(std::string_view rule = "moving-average", // NOLINT: a name is a rule with its defaults
                    std::initializer_list<std::pair<std::string_view, double>> values = {});

    const StopRuleType& type() const;
    const std::string& name() const { return type().name; }
    bool is(std::string_view rule) const { return name() == rule; }
    bool takes(std::string_view parameter) const { return type().index_of(parameter) >= 0; }
    // Throw std::invalid_argument, naming the option, for a parameter that the rule does not take.
    double get(std::string_view parameter) const;
    void set(std::string_view parameter, double value);
    // In the order of type().parameters.
    std::span<const double> values() const { return {values_.data(), type().parameters.size()}; }
    // Whether the rule goes on from text to text because a parameter says so.
    bool is_persistent() const;

    EntropyOf entropy_of = EntropyOf::raw;
    bool drop_stop_token = false;       // whether the token that fires a rule that may drop it is not proposed
    int min_tokens = 1;                 // tokens before which no rule fires
    int max_tokens = kDefaultMaxTokens; // the cap, also of a draft length that moves, unless persistent

  private:
    std::size_t checked_index(std::string_view parameter) const;

    int rule_ = 0; // in all_stop_rules()
    std::array<double, kMaxParameters> values_ = {};
};
static_assert(std::is_trivially_copyable_v<StopRuleOptions>);

// Empty when usable; else what is wrong, naming the option.
std::string why_invalid(const StopRuleOptions& options);
// Empty unless what the rule drops would bias sampled text under this acceptance; else the line that says so.
std::string why_biased(const StopRuleOptions& options, Acceptance acceptance);

// ---- what a rule does ----

// How the last round ended, for rules that learn.
struct RoundFeedback {
    int drafted = 0;        // of a tree on its best path, which is what rules have seen
    int accepted = 0;       // of these
    bool cut_short = false; // by budget, context or end of text: rules learn nothing from its length
    double draft_seconds = 0;
    double target_seconds = 0; // of everything in the round but drafting
    BatchLoad batch_load = {}; // of the target's pass
    int rows = 0;              // of this sequence in it; 0: drafted + 1
    int emitted = 0;           // tokens, also off a tree's best path; 0: accepted + 1
    int caught_up = 0;         // tokens of the text that the draft read before its passes, and how long that took
    double catch_up_seconds = 0;
    bool is_foreseen = false; // the round has not ended, and may end otherwise
};

// The drafting phase so far.
struct Drafting {
    std::vector<DraftedToken> tokens;
    double passes = 0;       // draft passes
    double further_rows = 0; // of these, beyond one each
    bool asked = false;      // whether there was anything to draft in this round
    RoundContext round = {}; // as far as is known by now

    int drafted() const { return static_cast<int>(tokens.size()); }                    // t
    double entropy() const { return static_cast<double>(tokens.back().entropy_nats); } // x_t; NaN: none is known
};

// A rule's formula and what it remembers, of one sequence. Pure functions of what was drafted and how rounds ended: no
// clock, no randomness.
class StopCondition {
  public:
    virtual ~StopCondition() = default;
    virtual std::unique_ptr<StopCondition> clone() const = 0;

    virtual void begin_sequence() {}
    virtual void begin_round() {}
    // Whether the last token drafted is the last of the round. Asked once for each token, also before min_tokens.
    virtual bool fires(const Drafting& drafting) = 0;
    // How many of the text's unread tokens the draft is to read: all, or its last ones alone. Asked before the first
    // pass, while none is read.
    virtual int tokens_to_read(const Drafting& drafting) { return drafting.round.unread; }
    // Whether another draft pass is worth its time; not asked before min_tokens.
    virtual bool wants_another(const Drafting&, const PassCost&) { return true; }
    // The rule as numbers, for a device that drafts a chain of tokens by itself: narrows `rule`, whose max_rows and
    // first are set. A rule that has no such form is asked after each row.
    virtual void forecast(const Drafting&, DeviceStopRule& rule) const { rule.max_rows = 1; }
    // What the round teaches this sequence and, unless it is only foreseen, the whole replica.
    virtual void end_round(const Drafting&, const RoundFeedback&) {}

  protected:
    StopCondition() = default;
    StopCondition(const StopCondition&) = default;
    StopCondition& operator=(const StopCondition&) = default;
};

// A rule's `make`, where its class is made of the options, or of these and the replica's gain model.
template <typename Rule>
std::unique_ptr<StopCondition> make_stop_condition(const StopRuleOptions& options, GainModel* gain) {
    if constexpr (std::is_constructible_v<Rule, const StopRuleOptions&, GainModel*>)
        return std::make_unique<Rule>(options, gain);
    else
        return std::make_unique<Rule>(options);
}

// ---- what drafters ask ----

enum class StopDecision {
    go_on,
    stop, // the token is the last
    drop, // and is not proposed
};

// A rule under its caps, of one sequence.
class StopRule {
  public:
    // `gain` is needed by rules that weigh costs and by persistent ones, shared by a replica's sequences and outlives
    // the rule. Throws std::invalid_argument with why_invalid's words.
    explicit StopRule(const StopRuleOptions& options, GainModel* gain = nullptr);
    StopRule(const StopRule& other);
    StopRule& operator=(const StopRule& other);
    StopRule(StopRule&&) noexcept = default;
    StopRule& operator=(StopRule&&) noexcept = default;
    ~StopRule() = default;

    const StopRuleOptions& options() const { return options_; }
    // Whether verify looks at the token's distribution at all; rules that count do not.
    bool needs_distribution() const { return needs_distribution_; }
    // Whether it is the adjusted one.
    bool needs_adjusted() const { return needs_distribution() && options_.entropy_of == EntropyOf::adjusted; }
    void begin_sequence(); // per-sequence state starts afresh
    void begin_round(const RoundContext& round = {});
    // The draft has read nothing of the text and may begin within it: how many of its unread tokens it is to read, all
    // or the last ones alone. From now on only these count as unread.
    int choose_reading();
    // Whether another draft pass is worth its time; to be asked before each. Only rules that weigh costs ever say no.
    bool wants_another(const PassCost& cost = {});
    // The pass that was wanted took so much more: fewer share it than were asked, or it had more rows than one.
    void charge(double passes, double further_rows = 0) {
        drafting_.passes += passes;
        drafting_.further_rows += further_rows;
    }
    // How far a chain that begins with the next token is likely to go, at most `most` rows, for a device that goes on
    // by itself: what it makes too many of is dropped, what it makes too few of is asked for again.
    DeviceStopRule forecast(int most) const;
    // To be asked once after each drafted token.
    StopDecision decide(const DraftedToken& token);
    // Why the last answer was to stop: rule or cap; none while it was not. A rule that fires on the cap's
    // token counts as rule.
    DraftEnd end() const { return end_; }
    // Learns from the round, for this sequence and, with rules that need `gain`, for all of the replica.
    void end_round(const RoundFeedback& feedback) { condition_->end_round(drafting_, feedback); }

  private:
    StopRuleOptions options_;
    bool needs_distribution_;
    std::unique_ptr<StopCondition> condition_;
    Drafting drafting_;
    DraftEnd end_ = DraftEnd::none;
};

} // namespace entrodraft::spec
