// From simulated settings to a winner: real runs of the best setting of each rule, and what is said of them.
//
// Called by tune_command.
#pragma once

#include "launch/cmd/bench/comparison.h"
#include "launch/cmd/simulation_report.h"
#include "launch/statistics.h"
#include "spec/replay/tune.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// The best setting of a rule, simulated on some prompts and run on others.
struct ConfirmedRule {
    spec::TunedRule tuned;
    double simulated_ms = 0; // a token, on the prompts that it was chosen on
    spec::Stats stats;       // of one repetition of the real runs
    Interval measured_ms;    // a token, of all repetitions, over prompts
    double predicted_ms = 0; // a token: counts of the real runs times costs
    Interval behind;         // of the fastest, as a share of it, pairwise over prompts
    Interval speedup;        // measured, over plain decoding, pairwise over prompts

    // Whether the runs tell it from the fastest, and from plain decoding.
    bool is_slower() const { return behind.is_known() && behind.low > 0; }
    bool beats_plain() const { return speedup.is_known() && speedup.low > 1; }
};

// Fills in what was measured: `times` of each rule, and of plain decoding. The fastest goes first. Local.
void verify(std::vector<ConfirmedRule>& rules, const std::vector<PromptTimes>& times, const PromptTimes& plain);

enum class AgainstPlain { faster, no_difference_seen, nothing_is_faster };

struct Winner {
    const ConfirmedRule* rule = nullptr;
    AgainstPlain against_plain = AgainstPlain::faster;
};

// Of those that the runs do not tell from the fastest, the one that simulation puts first: as good as the fastest, and
// not by luck. Those that are seen to beat plain decoding go before those that only may. Where none was faster than
// plain decoding it is expected-gain, which drafts only where that pays. Local.
Winner winner_of(const std::vector<ConfirmedRule>& rules);

// What there is to know of the winner beside its name: whether it beats plain decoding, and why it is not the first
// row. A line each, for people and, as remarks, for the file. Local.
std::vector<std::string> remarks_of(const Winner& winner, const std::vector<ConfirmedRule>& rules);

// A warning, a line, where measured times are far from counts times costs; else empty. Local.
std::string prediction_warning(const std::vector<ConfirmedRule>& rules);

// "stop-rule = static" and what belongs to it, for --config; `remarks` are before it as comments. Sampled text was
// tuned with gumbel, which the file then asks for.
std::string config_text(const spec::StopRuleOptions& rule, bool is_sampled, const std::vector<std::string>& remarks);

std::string tuning_table(const std::vector<ConfirmedRule>& rules);
Json tuning_json(const ConfirmedRule& rule);
Json tried_json(const spec::TriedSetting& tried, const spec::Costs& costs); // in simulation

} // namespace entrodraft::launch
