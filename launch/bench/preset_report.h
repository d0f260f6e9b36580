// Published figures beside ours: tables and JSON of bench preset.
//
// Pure. What ours are is preset_replay.cpp's and preset_run.cpp's affair.
#pragma once

#include "entrodraft/launch/bench/presets.h"
#include "entrodraft/launch/json_line.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace entrodraft::launch {

// Of one setting; what is not known is left out.
struct OurFigures {
    std::optional<double> ms_per_token;
    std::optional<double> speedup; // over plain decoding
    std::optional<double> accepted_share, alpha, tokens_per_pass;
    std::vector<double> level_shares;   // of a cascade, the smallest draft first
    std::optional<double> iid_speedup;  // of a constant rule: the textbook's, at the case's alpha
    std::vector<double> ms_of_texts;    // where the preset shows them
    std::optional<double> ms_per_round; // the same
    std::vector<int> lengths;           // drafted tokens of the rounds of one text, where the preset shows them
    std::optional<double> milliseconds; // that simulating took
};

struct ComparedRow {
    std::string name; // "static:2.25, drop"
    PublishedRow published;
    OurFigures ours;
};

struct ComparedCase {
    PresetCase preset_case;
    std::string basis; // where ours come from, a sentence; empty: there are none
    std::string costs; // of passes, that a replay goes by
    std::optional<double> alpha;
    std::vector<ComparedRow> rows;
};

struct PresetReport {
    Json json;
    std::string text;
};

std::string name_of(const PublishedRow& row);

// Of a row of the case, as published, or from its measured milliseconds and those of "none"; none: neither is
// known.
std::optional<double> published_speedup(const PresetCase& preset_case, const PublishedRow& row);

// The alpha at which k tokens, drafted one after another, have this share of accepted ones in the i.i.d. model; none
// where no alpha in [0, 1] has. Local.
std::optional<double> alpha_of_share(double accepted_share, int k);

// Of a preset whose cases were compared, or, of `theory` and `study`, without any. `commands` are filled in.
PresetReport report_of(const Preset& preset, const std::vector<ComparedCase>& cases,
                       const std::vector<std::string>& commands);

// All presets, a line each.
PresetReport list_of_presets();

// To the file, if one is named, and to stdout. Throws std::runtime_error where that fails. Local.
void show(const PresetReport& report, const std::string& output, bool json);

} // namespace entrodraft::launch
