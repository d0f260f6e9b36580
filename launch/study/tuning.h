// From simulated settings to a winner: real runs of the best setting of each rule, and what is said of them.
//
// Called by tune_command.
#pragma once

#include "entrodraft/launch/bench/comparison.h"
#include "entrodraft/launch/study/simulation_report.h"
#include "entrodraft/spec/tune.h"

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
    double speedup = 0;      // measured, over plain decoding

    // Whether the runs tell it from the fastest.
    bool is_slower() const { return behind.low > 0; }
};

// Milliseconds of each prompt, all repetitions together.
struct PromptTimes {
    std::vector<double> ms;
    std::vector<double> tokens;

    void add(const std::vector<spec::Stats>& stats_of_prompts);
};

// Fills in what was measured: `times` of each rule, and of plain decoding. The fastest goes first. Local.
void judge(std::vector<ConfirmedRule>& rules, const std::vector<PromptTimes>& times, const PromptTimes& plain);

// Of those that the runs do not tell from the fastest, the one that simulation puts first: as good as the fastest, and
// not by luck. Local.
const ConfirmedRule& winner_of(const std::vector<ConfirmedRule>& rules);

// "stop-rule = static" and what belongs to it, for --config; `remarks` stand before it as comments. Sampled text was
// tuned with gumbel, which the file then asks for.
std::string config_text(const spec::StopRuleOptions& rule, bool is_sampled, const std::vector<std::string>& remarks);

std::string tuning_table(const std::vector<ConfirmedRule>& rules);
// Every setting that simulation tried.
Json tried_json(const std::vector<ConfirmedRule>& rules, const spec::Costs& costs);
Json tuning_json(const std::vector<ConfirmedRule>& rules);

} // namespace entrodraft::launch
