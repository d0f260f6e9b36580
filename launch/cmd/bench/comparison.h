// Ways to decode, side by side on the same prompts: what bench compare runs and shows, and tune confirms settings by.
//
// Settings take turns on every prompt, in rotating order, so that noise meets all alike. Each keeps its engine over all
// prompts of a temperature, so that what learns, learns; the next temperature begins with new ones.
#pragma once

#include "launch/cli/options.h"
#include "launch/io/json_line.h"
#include "launch/io/machine_load.h"
#include "launch/load/drafters.h"
#include "launch/load/model_pair.h"
#include "spec/round/engine.h"

#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

enum class SettingKind {
    plain,       // no draft
    speculative, // a drafter, its rules and an acceptance
    longest,     // the same drafting to the cap: it shows where the draft agrees with the text
};

// A way to decode.
struct Setting {
    SettingKind kind = SettingKind::plain;
    DrafterChoice drafter;
    std::vector<spec::StopRuleOptions> rules; // of each level
    spec::AcceptanceOptions acceptance;

    std::string name() const;            // "model, static, threshold 2.25 nats"
    std::string acceptance_name() const; // "gumbel", "rejection, lenience 0.5"
    bool is_gumbel() const { return acceptance.kind == spec::Acceptance::gumbel; }
    bool drafts() const { return kind != SettingKind::plain; }
};

// What a setting did at one temperature. The counts are on the coordinator.
struct Outcome {
    Setting setting;
    spec::Stats stats; // of all prompts
    std::vector<spec::Stats> stats_of_prompts;
    std::vector<std::vector<spec::TokenId>> texts;
    // For `longest`, [prompt][place]: true where the draft's token is the text's; also where the draft was not asked.
    std::vector<std::vector<bool>> agreements;
};

struct Temperature {
    double temperature = 0;
    std::vector<Outcome> outcomes; // plain decoding first

    // Plain decoding beside a setting.
    const Outcome& plain_of(const Setting& setting) const;
};

struct ComparisonTask {
    dist::Session& session;
    ModelPair& models;
    const Drafters& drafters;
    const CompareOptions& options;
    std::vector<spec::Costs> costs;     // of the levels of drafting; of files, they are expected-gain's too
    std::vector<spec::Request> prompts; // on the coordinator
};

// At each temperature. Collective over the world. Throws OrderlyFailure.
std::vector<Temperature> compare(const ComparisonTask& task);

// Of greedy texts, and those sampled with gumbel, how many are not plain decoding's, as they must be; nothing where
// they may differ from it. Local, on the coordinator.
std::optional<int> different_texts(const CompareOptions& options, const Temperature& result, const Outcome& outcome);

// Costs of the levels of one drafter; those without a model have none.
std::vector<spec::Costs> costs_of(const ComparisonTask& task, const DrafterChoice& drafter);

// What entropy and stop decision of a rule cost: the same draft loop with and without them.
struct DraftOverhead {
    std::string rule;
    double percent = 0;      // of a draft step; median over pairs of (with / without - 1)
    double step_seconds = 0; // a draft step without them
    int pairs = 0;
};

struct ComparisonFacts {
    Json environment;
    MachineLoad machine;
    std::vector<DraftOverhead> overheads; // of the rules that look at entropies; empty without a draft model
    double operations_ratio = 0;          // of a draft's row over a target's; 0 without a draft model
};

// What bench compare shows.
struct ComparisonReport {
    Json json;
    std::string text;
    std::vector<std::string> complaints; // a line for each setting whose texts had to be plain decoding's and are not
};

// Local, on the coordinator.
ComparisonReport report_of(const ComparisonTask& task, const std::vector<Temperature>& results,
                           const ComparisonFacts& facts);

} // namespace entrodraft::launch
