// From simulated settings to a winner: real runs of the best setting of each rule, and remarks on them. Pure.
//
// Called by tune_command.
#pragma once

#include "launch/io/report.h"
#include "launch/start/statistics.h"
#include "spec/replay/tune.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// The best setting of a rule, simulated on some prompts and run on others.
struct ConfirmedRule {
    spec::TunedRule tuned;
    PromptTimes times;       // of all repetitions of the real runs
    spec::Stats stats;       // of one repetition
    double predicted_ms = 0; // a token: counts of the real runs times costs
    Interval measured_ms;    // a token, of all repetitions, over prompts
    Interval behind;         // of the fastest, as a share of it, pairwise over prompts
    Interval speedup;        // measured, over plain decoding, pairwise over prompts

    const spec::StopRuleOptions& setting() const { return tuned.best.setting.rule; }
    const std::optional<spec::TreeOptions>& tree() const { return tuned.best.setting.tree; }
    std::string name() const;                                             // in words
    double simulated_ms() const { return tuned.seconds_per_token * 1e3; } // on the prompts that it was chosen on

    // Whether the runs tell it from the fastest, and from plain decoding; else it may still be faster than that.
    bool is_slower() const { return behind.is_known() && behind.low > 0; }
    bool beats_plain() const { return speedup.is_known() && speedup.low > 1; }
    bool may_beat_plain() const { return speedup.mean > 1; }
};

// Fills in the intervals of at least one rule; `plain` are the times of plain decoding. The fastest goes first.
void verify(std::vector<ConfirmedRule>& rules, const PromptTimes& plain);

// Of those that the runs do not tell from the fastest, the one that simulation puts first: as good as the fastest, and
// not by chance. Those that are seen to beat plain decoding go before those that only may. Where none was faster than
// plain decoding it is expected-gain, which drafts only where that pays.
const ConfirmedRule& winner_of(const std::vector<ConfirmedRule>& rules);

// What there is to know of the winner, one of `rules`, beside its name: whether it beats plain decoding, and why it is
// not the first row. A line each, for people and, as remarks, for the file.
std::vector<std::string> remarks_of(const ConfirmedRule& winner, const std::vector<ConfirmedRule>& rules);

// A warning, a line, where measured times are far from counts times costs; else empty.
std::string prediction_warning(const std::vector<ConfirmedRule>& rules);

// "stop-rule = static" and what belongs to it, or "tree = SHAPE", for --config; `remarks` are before it as comments.
// Sampled text was tuned with gumbel, which the file then asks for.
std::string config_text(const ConfirmedRule& rule, bool is_sampled, const std::vector<std::string>& remarks);

Columns confirmed_row(const ConfirmedRule& rule);

} // namespace entrodraft::launch
