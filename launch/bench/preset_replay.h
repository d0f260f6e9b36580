// Presets without models: their rules replayed over texts of synthetic acceptance, at their published costs.
//
// Local, on one rank. Called by bench preset.
#pragma once

#include "entrodraft/launch/bench/preset_report.h"
#include "entrodraft/launch/bench/presets.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace entrodraft::launch {

struct PresetReplayPlan {
    std::optional<double> alpha; // in place of what the preset says
    int texts = 0;               // 0: as many as make 20,000 tokens
    std::uint64_t seed = 0;
};

// Of each case ours beside the published figures, where costs and acceptance are known; else the latter alone. Throws
// std::runtime_error where no acceptance makes a row come out as published.
std::vector<ComparedCase> replay_preset(const Preset& preset, const PresetReplayPlan& plan);

// Whether any case can be replayed with an acceptance, the preset's or the plan's.
bool can_be_replayed(const Preset& preset, const PresetReplayPlan& plan);

} // namespace entrodraft::launch
