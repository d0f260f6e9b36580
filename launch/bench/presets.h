// Published experiments as data: what was done, with what, and the figures that came of it. presets.json is compiled
// in.
//
// Knows nothing of how they are run again: see preset_replay.h and preset_run.h. Called by bench preset and bench
// alpha.
#pragma once

#include "entrodraft/launch/options/options.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

// A published figure, or several of one setting.
struct PublishedRow {
    std::string rule;  // as in --rules, or "none"; empty: the label says what it is
    std::string label; // what sets it apart from rows of the same rule; of kind alpha the drafter
    std::optional<double> ms_per_token, simulated_ms_per_token;
    std::optional<double> speedup, expected_speedup;
    std::optional<double> alpha;          // mean of sum min(p, q)
    std::optional<double> accepted_share; // accepted / drafted
    std::vector<double> level_shares;     // the same of a cascade, the smallest draft first
    bool drop_stop_token = false;
    int min_draft_tokens = 1;
    int max_draft_tokens = 0; // 0: the preset's
    double lenience = 1;
};

// Rows that share models, temperature and costs.
struct PresetCase {
    std::string name;
    double temperature = 0;
    std::optional<double> t_draft_ms, t_target_ms; // of the published machine
    std::optional<double> c;                       // t_draft / t_target, where only that is known
    std::string costs_origin;
    // What a replay takes as the mean acceptance: published, or what makes the row of this rule come out as published,
    // or a share of matching tokens. None: it cannot be replayed.
    std::optional<double> alpha;
    std::string alpha_from; // a rule
    std::optional<double> matching_share;
    bool cascade = false;
    std::vector<PublishedRow> rows;

    bool has_costs() const { return c || (t_draft_ms && t_target_ms); }
    // Milliseconds where they are known, else multiples of t_target.
    spec::Costs costs() const;
    double cost_ratio() const; // c
};

struct PresetSetting {
    int prompt_tokens = 0; // longer prompts are cut to so many; 0: not
    int max_new_tokens = 128;
    int mean_new_tokens = 0; // that texts had on average; 0: max_new_tokens
    int max_draft_tokens = 15;
    int no_repeat_ngram_size = 0;
    double top_p = 1;
    DrafterKind drafter = DrafterKind::model; // or ngram
    int ngram_max = 4;
    bool ngram_first = false; // the earliest match
};

enum class PresetKind {
    speed,           // stop rules, by time
    alpha,           // drafters, by acceptance
    theory,          // formulas
    study,           // facts, and commands that measure ours
    simulation_cost, // the time that replays take
};
std::string to_string(PresetKind kind);

struct Preset {
    std::string name;
    PresetKind kind = PresetKind::speed;
    std::string source, about;
    PresetSetting setting;
    std::vector<PresetCase> cases;
    bool shows_lengths = false; // drafted tokens, round by round
    bool shows_texts = false;   // spread of the time of a text
    std::vector<std::string> facts, notes;
    std::vector<std::string> commands; // with {target}, {draft} and {input} to be filled in

    bool drafts_nothing() const;
};

// Throws std::runtime_error naming preset, field and reason. Local.
std::vector<Preset> parse_presets(std::string_view json);

// Those compiled in, in their order.
const std::vector<Preset>& presets();
// Throws BadOption, with a suggestion.
const Preset& preset_named(const std::string& name);

// The rule of a row; "none" has none. Throws BadOption where it is not a rule. Local.
std::optional<spec::StopRuleOptions> rule_of(const PublishedRow& row, const PresetSetting& setting);

// What a preset's tables always have beside its own rows, where these lack it: constant, heuristic, expected-gain.
std::vector<PublishedRow> with_usual_rows(const PresetCase& preset_case);

} // namespace entrodraft::launch
