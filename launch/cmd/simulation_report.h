// What replays come to: milliseconds a token with their uncertainty over prompts, beside plain decoding and the oracle.
//
// Called by simulate and tune. Pure.
#pragma once

#include "launch/io/report.h"
#include "launch/statistics.h"
#include "spec/replay/simulate.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

struct SimulatedSetting {
    spec::Simulated counts;
    Interval ms_per_token;
    double speedup = 0;        // over plain decoding
    double oracle_speedup = 0; // of the same draft; 0: not asked for

    double share_of_oracle() const { return oracle_speedup > 0 ? speedup / oracle_speedup : 0; }
    double share_of_oracle_gain() const { return oracle_speedup > 1 ? (speedup - 1) / (oracle_speedup - 1) : 0; }
};

// "draft 2, static, threshold 2.25 nats", "plain", "oracle". Of several drafts each has a "draft 2, plain" too: costs
// of the target are measured beside each.
std::string name_of(const spec::ReplaySetting& setting, bool names_draft);

SimulatedSetting figures_of(spec::Simulated counts);
// Fills in what each is of its draft's oracle, where that is among them. The oracle is that of a draft that waits for
// the verification, and bounds no setting that drafts ahead. Local.
void compare_with_oracles(std::vector<SimulatedSetting>& settings);
// Of each draft only the fastest setting of each rule. Local.
std::vector<SimulatedSetting> best_of_each_rule(const std::vector<SimulatedSetting>& settings);

// The figures of the table, and all of JSON.
Columns simulation_row(const SimulatedSetting& setting, bool names_draft);
Json to_json(const SimulatedSetting& setting, bool names_draft);
// The rule's own numbers, by the names of their options.
Json parameters_json(const spec::StopRuleOptions& rule);

} // namespace entrodraft::launch
