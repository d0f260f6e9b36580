// What bench preset and bench alpha were asked to do, and the options they come from.
//
// Every value is checked here. Pure: opens no file but --config.
#pragma once

#include "entrodraft/launch/options/options.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

// What runs on models are given; of a preset that only names commands, what these are filled in with.
struct PresetModels {
    ModelOptions models;
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
    std::string input;
    std::string draft_table;           // of bigram and unigram; empty: these are not measured
    int most_prompts = 0;              // 0: all
    std::optional<int> max_new_tokens; // in place of the preset's
};

struct PresetOptions {
    bool list = false;
    std::string name;
    std::optional<PresetModels> real;  // none: replayed, or published figures alone
    std::optional<double> alpha;       // of a replay, in place of the preset's
    int texts = 0;                     // of a replay; 0: as many as make 20,000 tokens
    std::optional<std::uint64_t> seed; // of texts; none given: 0
    std::string output;                // file; empty: none
    bool json = false;
    bool quiet = false;
};

const std::vector<OptionGroup>& preset_groups();
const std::vector<OptionGroup>& alpha_groups();

// Throw BadOption. Local.
PresetOptions preset_options(const ParsedOptions& given);
DrafterBenchOptions alpha_options(const ParsedOptions& given);

} // namespace entrodraft::launch
