// Finds the best setting of each stop rule by replays of a recording. It tries a grid first, then smaller and smaller
// steps around the best setting of the grid.
//
// Called by the command tune, which confirms the results by real runs, and by bench compare (the grid alone).
#pragma once

#include "spec/replay/simulate.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

// Settings of every rule, with drafts of up to `max_tokens`.
std::vector<StopRuleOptions> tuning_grid(int max_tokens);

// The tree and, if its kind grows, narrower ones of the kind, with fewer levels and siblings.
std::vector<TreeOptions> narrower_trees(const TreeOptions& tree);

// Settings next to this one: each parameter goes up and down by `step`, a share of its value; whole numbers by 1.
std::vector<StopRuleOptions> neighbours(const StopRuleOptions& rule, double step);

struct TuningTask {
    const RecordingHead* head = nullptr;
    std::span<const TextRecord* const> texts;
    std::size_t draft = 0;
    Costs costs;
    int max_tokens = 15; // of chains
    int threads = 1;
    std::vector<TreeOptions> trees = {}; // tried as well as the rules, with narrower ones
};

struct TriedSetting {
    StopRuleOptions rule;
    std::optional<TreeOptions> tree; // none: a chain
    Stats stats;                     // of all texts
    double seconds_per_token = 0;
};

struct TunedRule {
    Simulated best;
    double seconds_per_token = 0;
    std::vector<TriedSetting> tried; // all settings of this rule, each once, in the order of trial
};

// The results of every rule and of each tree, the fastest first. Throws as simulate() does.
std::vector<TunedRule> tune(const TuningTask& task);

// Predicted seconds per new token, from a setting's counts.
double seconds_per_token(const Stats& stats, const Costs& costs);

} // namespace entrodraft::spec
