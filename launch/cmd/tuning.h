// Chooses the winner of a tuning: compares the real runs, which the caller makes, of the best simulated setting of each
// rule. Also writes remarks on the results. Does no input or output. Called by tune_command.
#pragma once

#include "launch/io/report.h"
#include "launch/start/statistics.h"
#include "spec/replay/tune.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// The best setting of a rule. It was simulated on some prompts and run on others.
struct ConfirmedRule {
    spec::TunedRule tuned;
    PromptTimes times;       // for all repetitions of the real runs
    spec::Stats stats;       // for one repetition
    double predicted_ms = 0; // for a token: counts of the real runs times costs
    Interval measured_ms;    // for a token, over all repetitions and prompts
    Interval behind;         // additional time as a share of the fastest rule's, pairwise over prompts
    Interval speedup;        // measured against plain decoding, pairwise over prompts

    const spec::StopRuleOptions& setting() const { return tuned.best.setting.rule; }
    const std::optional<spec::TreeOptions>& tree() const { return tuned.best.setting.tree; }
    std::string name() const;                                             // in words
    double simulated_ms() const { return tuned.seconds_per_token * 1e3; } // on the prompts of the choice

    // Return whether the runs tell it from the fastest, or from plain decoding. Else it may still beat plain decoding.
    bool is_slower() const { return behind.is_known() && behind.low > 0; }
    bool beats_plain() const { return speedup.is_known() && speedup.low > 1; }
    bool may_beat_plain() const { return speedup.mean > 1; }
};

// Fills in the intervals of at least one rule and puts the fastest first. `plain`: the times of plain decoding.
void verify(std::vector<ConfirmedRule>& rules, const PromptTimes& plain);

// Returns, of the rules that the runs do not tell from the fastest, the one with the lowest simulated time: it is as
// good as the fastest, and not by chance. Rules that are seen to beat plain decoding go before rules that only may. If
// none was faster than plain decoding, returns expected-gain, which drafts only if that pays.
const ConfirmedRule& winner_of(const std::vector<ConfirmedRule>& rules);

// Returns remarks on the winner, one of `rules`: whether it beats plain decoding, and why it is not the first row. Each
// is a line, shown to people and written to the file.
std::vector<std::string> remarks_of(const ConfirmedRule& winner, const std::vector<ConfirmedRule>& rules);

// Returns a line of warning if measured times are far from counts times costs; else "".
std::string prediction_warning(const std::vector<ConfirmedRule>& rules);

// Returns the text for --config: "stop-rule = static" and its parameters, or "tree = SHAPE". `remarks` come first, as
// comments. Sampled text was tuned with gumbel; the text then asks for it.
std::string config_text(const ConfirmedRule& rule, bool is_sampled, const std::vector<std::string>& remarks);

Columns confirmed_row(const ConfirmedRule& rule);

} // namespace entrodraft::launch
