// The best setting of each stop rule, found by replaying a recording: a grid first, then smaller and smaller steps
// around the best of it.
//
// Called by the command tune, which confirms what comes out by real runs, and by bench compare (the grid alone).
#pragma once

#include "spec/replay/simulate.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

// Settings of every rule, with drafts of up to `max_tokens`.
std::vector<StopRuleOptions> tuning_grid(int max_tokens);

// The tree and narrower ones of its kind: of those that grow fewer levels and siblings.
std::vector<TreeOptions> narrower_trees(const TreeOptions& tree);

// Settings next to this one: its parameters a `step` (a share of them) up and down, whole numbers by 1.
std::vector<StopRuleOptions> neighbours(const StopRuleOptions& rule, double step);

struct TuningTask {
    const RecordingHead* head = nullptr;
    std::span<const TextRecord* const> texts;
    std::size_t draft = 0;
    Costs costs;
    int max_tokens = 15; // of chains
    int threads = 1;
    std::vector<TreeOptions> trees = {}; // that are tried beside the rules, with narrower ones
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
    std::vector<TriedSetting> tried; // all settings of this rule, each once, in the order in which they were
};

// Of every rule, and of each of the trees, the fastest first. Throws what simulate() throws.
std::vector<TunedRule> tune(const TuningTask& task);

// Predicted seconds a new token of a setting's counts.
double seconds_per_token(const Stats& stats, const Costs& costs);

} // namespace entrodraft::spec
