// What record, simulate and tune were asked to do, and the options they come from.
//
// Every value is checked here. Pure: opens no file but --config.
#pragma once

#include "launch/cli/options.h"

#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

struct RecordOptions {
    ModelOptions models;
    RequestDefaults requests;
    std::string input;
    std::string output;
    bool resume = false;
    int max_prompts = 0; // 0: all
    int max_draft_tokens = spec::StopRuleOptions::kDefaultMaxTokens;
    std::vector<std::string> costs; // files, of each draft; empty: measured first
    bool quiet = false;
};

// Costs that stand in place of the recording's; empty: its own.
struct CostsInstead {
    std::string file;
    std::optional<double> t_draft_ms, t_first_draft_ms, t_round_ms;
    std::vector<double> t_target_ms; // of passes of 1, 2, ... rows; the last goes on
};

struct SimulateOptions {
    std::vector<std::string> recordings;
    std::vector<spec::StopRuleOptions> rules;
    bool oracle = false; // and plain decoding, which every speed-up is over, always
    // The cap of all rules and of the oracle; none: that of the rules, or what the recording holds if that is less.
    std::optional<int> max_draft_tokens;
    bool best_of_each = false; // of each rule only the fastest setting is shown
    std::optional<int> draft;  // from 1; none: each
    CostsInstead costs;
    spec::StopRuleOptions every_rule; // what holds for all of them
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
    int outcomes_ahead = 8;    // of dedicated, that are drafted for; 0: none
    std::optional<int> ahead;  // the same where it has an effect
    int threads = 0;           // 0: all cores
    std::string output, trace; // files; empty: none
    bool json = false;
};

struct TuneOptions {
    ModelOptions models;
    RequestDefaults requests;
    std::string input;
    std::string recording; // to choose by; empty: made of half the prompts
    std::string output;    // --config file of the winner
    std::string report;    // JSON; empty: none
    int max_prompts = 0;
    int max_draft_tokens = spec::StopRuleOptions::kDefaultMaxTokens;
    int repetitions = 3; // real runs of each rule's best
    std::vector<std::string> costs;
    bool quiet = false;
};

void declare(OptionSet& set, RecordOptions& options);
void declare(OptionSet& set, SimulateOptions& options);
void declare(OptionSet& set, TuneOptions& options);

} // namespace entrodraft::launch
