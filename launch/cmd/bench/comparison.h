// Runs several ways to decode on the same prompts, for comparison. bench compare shows them, and tune confirms settings
// with them.
//
// Settings take turns on every prompt, in rotating order, so that noise affects all alike. Each setting keeps its
// engine over all prompts of a temperature, so that rules can learn. The next temperature begins with new engines.
#pragma once

#include "launch/cli/options.h"
#include "launch/io/json_line.h"
#include "launch/io/machine_load.h"
#include "launch/load/drafters.h"
#include "launch/load/model_pair.h"

#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

enum class SettingKind {
    plain,       // no draft
    speculative, // a drafter, its rules and an acceptance
    longest,     // drafts to the cap: shows where the draft agrees with the text
};

// A way to decode.
struct Setting {
    SettingKind kind = SettingKind::plain;
    DrafterChoice drafter;
    std::vector<spec::StopRuleOptions> rules; // one for each level
    spec::AcceptanceOptions acceptance;

    std::string name() const; // "model, static:threshold=2.25"
    bool is_gumbel() const { return acceptance.kind == spec::Acceptance::gumbel; }
    bool drafts() const { return kind != SettingKind::plain; }
};

// Results of a setting at one temperature. The counts are on the coordinator.
struct Outcome {
    Setting setting;
    spec::Stats stats; // over all prompts
    std::vector<spec::Stats> stats_of_prompts;
    std::vector<std::vector<spec::TokenId>> texts;
    // For `longest`, [prompt][place]: true if the draft's token is the text's; also true if the draft was not asked.
    std::vector<std::vector<bool>> agreements;
};

struct Temperature {
    double temperature = 0;
    std::vector<Outcome> outcomes; // plain decoding first

    // Returns the plain decoding that a setting is compared with.
    const Outcome& plain_of(const Setting& setting) const;
};

struct ComparisonTask {
    dist::Session& session;
    ModelPair& models;
    const Drafters& drafters;
    const CompareOptions& options;
    std::vector<spec::Costs> costs;     // of each level of drafting; those from files are expected-gain's costs, too
    std::vector<spec::Request> prompts; // on the coordinator
};

// Runs all settings at each temperature. Collective over the world. Throws OrderlyFailure.
std::vector<Temperature> compare(const ComparisonTask& task);

// Returns how many greedy texts, and texts sampled with gumbel, differ from plain decoding; none may. Returns nothing
// if texts are allowed to differ. Local, on the coordinator.
std::optional<int> different_texts(const CompareOptions& options, const Temperature& result, const Outcome& outcome);

// Returns the costs of the levels of one drafter. A drafter without a model drafts at no cost.
std::vector<spec::Costs> costs_of(const ComparisonTask& task, const DrafterChoice& drafter);

// The cost of a rule's entropy and stop decision: the same draft loop is timed with and without them.
struct DraftOverhead {
    std::string rule;
    double percent = 0;      // share of a draft step; median over pairs of (with / without - 1)
    double step_seconds = 0; // time of a draft step without them
    int pairs = 0;
};

struct ComparisonFacts {
    Json environment;
    MachineLoad machine;
    std::vector<DraftOverhead> overheads; // for the rules that look at entropies; empty without a draft model
    double operations_ratio = 0; // operations of a draft's row over those of a target's row; 0 without a draft model
};

// The results that bench compare shows.
struct ComparisonReport {
    Json json;
    std::string text;
    std::vector<std::string> complaints; // a line for each setting whose texts wrongly differ from plain decoding
};

// Makes the report. Local, on the coordinator.
ComparisonReport report_of(const ComparisonTask& task, const std::vector<Temperature>& results,
                           const ComparisonFacts& facts);

} // namespace entrodraft::launch
