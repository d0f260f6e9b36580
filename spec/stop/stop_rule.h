// Decides when to stop drafting. Each rule is one file of this folder, NAME.cpp. The file has the rule's paper,
// formula, parameters, tuning grid and form on devices, as a StopRuleType. Options, help, JSON, grids and the tests
// over all rules are generated from these types.
//
// In the files, x_t is the entropy, in nats, of the draft's next-token distribution (EntropyOf) at the t-th token of
// the current drafting phase, from t = 1. c_t is the drafted token's probability in this distribution. The token that
// fires a rule is kept, unless `drop` is set or the rule weighs costs. The limits --max-draft-tokens and
// --min-draft-tokens apply to every rule: before min_tokens no rule fires.
#pragma once

#include "spec/gpu/device_round.h"
#include "spec/plan/gain_model.h"
#include "spec/protocol/packet.h"
#include "spec/verify/verify.h"

#include <array>
#include <initializer_list>
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

// A number or switch that sets a rule.
struct StopRuleParameter {
    enum class Kind {
        number,
        whole_number,
        draft_length, // tokens: at most the cap, which lowers the default as well
        on_off,       // 0 or 1
    };
    static constexpr double kUnlimited = 1e300;

    const char* name; // "threshold": --stop-rule static:threshold=2.25, and in JSON
    Kind kind = Kind::number;
    double default_value = 0;
    double min = 0, max = kUnlimited;
    bool above_min = false;        // min itself is refused
    std::vector<double> grid = {}; // values that tuning begins with; empty: the default alone
    // For on_off: if it is on, the rule continues from text to text, and may draft as much as a packet holds.
    bool is_persistence = false;

    bool is_whole() const { return kind == Kind::whole_number || kind == Kind::draft_length || kind == Kind::on_off; }
};

// The input of a rule besides the number of tokens.
enum class LooksAt {
    nothing,
    distribution, // the one that the token was drawn from
    token,        // the token as well: dropping a drawn one would bias `rejection` (docs/reference.md)
};

using MakeStopCondition = std::unique_ptr<StopCondition> (*)(const StopRuleOptions& options, GainModel* gain);

// A drafted chain and how much of it was accepted: an example to learn from.
struct DraftedChain {
    std::vector<DraftedToken> tokens;
    int accepted = 0;
};
using FitStopRule = void (*)(std::span<const DraftedChain> chains, StopRuleOptions& options);

struct StopRuleType {
    std::string name;
    int position = 1000; // in lists; rules with the same position go by name
    LooksAt looks_at = LooksAt::distribution;
    std::vector<StopRuleParameter> parameters = {}; // in the order of RULE:NUMBER:NUMBER
    MakeStopCondition make = nullptr;
    FitStopRule fit = nullptr; // sets parameters from examples; tuning then tries values around them
    // The rule learns what passes cost, or is told by --costs, and drafts only if that pays. A token that fires it is
    // not proposed, whatever the options say.
    bool weighs_costs = false;
    const char* other_names = ""; // names in papers and programs, for messages; separated by blanks

    // Returns -1 if the rule has no such parameter.
    int index_of(std::string_view parameter) const;
    // Returns whether the token that fires may be left out of the draft (--drop-stop-token).
    bool may_drop() const { return looks_at != LooksAt::nothing && !weighs_costs; }
};

// The types in the order of lists. Each file's own function, as CMake lists them, is called once.
const std::vector<StopRuleType>& all_stop_rules();
const std::vector<std::string>& stop_rule_names();
// Returns nullptr if there is no such rule.
const StopRuleType* find_stop_rule(std::string_view name);

// ---- a rule's setting ----

// The distribution whose entropies and probabilities rules look at. raw: the softmax at temperature 1 after banned
// tokens alone. adjusted: the one that tokens are drawn from, after penalties, temperature and filters (greedy: after
// penalties alone, at temperature 1).
enum class EntropyOf { raw, adjusted };

// A rule with the values of its parameters. It is trivially copyable: ranks of one build send it to each other.
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
    // Both throw std::invalid_argument, naming the option, for a parameter that the rule does not take.
    double get(std::string_view parameter) const;
    void set(std::string_view parameter, double value);
    // The values in the order of type().parameters.
    std::span<const double> values() const { return {values_.data(), type().parameters.size()}; }
    // Returns whether a parameter says that the rule continues from text to text.
    bool is_persistent() const;
    // Returns whether the rule looks at the token's distribution at all. Rules that count do not.
    bool looks_at_distribution() const { return type().looks_at != LooksAt::nothing; }
    // Returns whether it looks at the adjusted distribution.
    bool looks_at_adjusted() const { return looks_at_distribution() && entropy_of == EntropyOf::adjusted; }

    EntropyOf entropy_of = EntropyOf::raw;
    bool drop_stop_token = false;       // true: the token that fires a rule is not proposed, if the rule may drop it
    int min_tokens = 1;                 // before this number of tokens no rule fires
    int max_tokens = kDefaultMaxTokens; // the cap, also of a draft length that moves, unless the rule is persistent

  private:
    std::size_t checked_index(std::string_view parameter) const;

    int rule_ = 0; // in all_stop_rules()
    std::array<double, kMaxParameters> values_ = {};
};
static_assert(std::is_trivially_copyable_v<StopRuleOptions>);

// Returns an empty string if the options are usable, else the reason, naming the option.
std::string why_invalid(const StopRuleOptions& options);
// If the rule drops tokens and that would bias sampled text under this acceptance, returns the line that says so.
std::string why_biased(const StopRuleOptions& options, Acceptance acceptance);

// ---- what a rule does ----

// The drafting phase so far.
struct Drafting {
    std::vector<DraftedToken> tokens;
    double passes = 0;       // draft passes
    double further_rows = 0; // rows of these passes, beyond one for each pass
    bool asked = false;      // true: the round could draft, so the rule was asked
    RoundContext round = {}; // as far as is known by now

    int drafted() const { return static_cast<int>(tokens.size()); }                    // t
    double entropy() const { return static_cast<double>(tokens.back().entropy_nats); } // x_t; NaN: none is known
};

// A rule's formula and its state, for one text. All functions depend only on the drafted tokens and on how rounds
// ended: they use no clock and no randomness.
class StopCondition {
  public:
    virtual ~StopCondition() = default;
    virtual std::unique_ptr<StopCondition> clone() const = 0;

    virtual void begin_round() {}
    // Returns whether the last drafted token ends the round. Asked once for each token, also before min_tokens.
    virtual bool fires(const Drafting& drafting) = 0;
    // The number of the text's unread tokens that the draft should read: all, or only the last ones. Asked only where
    // the draft may begin within the text.
    virtual int tokens_to_read(const Drafting& drafting) { return drafting.round.unread; }
    // Returns whether another draft pass is worth its time. Not asked before min_tokens.
    virtual bool wants_another(const Drafting&, const PassCost&) { return true; }
    // Expresses the rule as numbers, for a device that drafts a chain by itself. It narrows `rule`, whose max_rows and
    // first are set. A rule without such a form is asked after each row.
    virtual void forecast(const Drafting&, DeviceStopRule& rule) const { rule.max_rows = 1; }
    // Learns from the round for this text and, unless the round is only foreseen, for the whole replica.
    virtual void end_round(const Drafting&, const RoundFeedback&) {}

  protected:
    StopCondition() = default;
    StopCondition(const StopCondition&) = default;
    StopCondition& operator=(const StopCondition&) = default;
};

// The `make` of a rule whose class takes the options, or the options and the replica's gain model.
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
    stop, // the token is the last of the draft
    drop, // drafting ends, and the token is not proposed
};

// A rule with its caps, for one text.
class StopRule {
  public:
    // Rules that weigh costs and persistent ones need `gain`. A replica's texts share it, and it must outlive the rule.
    // Throws std::invalid_argument with why_invalid's words.
    explicit StopRule(const StopRuleOptions& options, GainModel* gain = nullptr);
    StopRule(const StopRule& other);
    StopRule& operator=(const StopRule& other);
    StopRule(StopRule&&) noexcept = default;
    StopRule& operator=(StopRule&&) noexcept = default;
    ~StopRule() = default;

    const StopRuleOptions& options() const { return options_; }
    // The present round. Of the text's unread tokens, only those count that the draft should read.
    const RoundContext& round() const { return drafting_.round; }
    // The reason of the last stop: rule or cap, rule if both hold; none if drafting goes on.
    DraftEnd end() const { return end_; }

    void begin_round(const RoundContext& round = {});
    // Returns whether another draft pass is worth its time. Asked before each; only rules that weigh costs say no.
    bool wants_another(const PassCost& cost = {});
    // The wanted pass cost this much more: fewer texts share it than were asked, or it had more than one row.
    void charge(double passes, double further_rows = 0) {
        drafting_.passes += passes;
        drafting_.further_rows += further_rows;
    }
    // The likely length of a chain that begins with the next token, at most `most` rows, for a device that goes on by
    // itself. If it makes too many rows, the rest is dropped; if it makes too few, more are asked for.
    DeviceStopRule forecast(int most) const;
    // To be asked once after each drafted token.
    StopDecision decide(const DraftedToken& token);
    // Learns from the round for this text and, with rules that need `gain`, for the whole replica.
    void end_round(const RoundFeedback& feedback) { condition_->end_round(drafting_, feedback); }

  private:
    StopRuleOptions options_;
    std::unique_ptr<StopCondition> condition_;
    Drafting drafting_;
    DraftEnd end_ = DraftEnd::none;
};

} // namespace entrodraft::spec
