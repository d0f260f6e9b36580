// Presets on real models: their rules, lengths and sampling, run side by side, with the published figures beside.
//
// Called by bench preset, on all ranks.
#pragma once

#include "entrodraft/launch/bench/preset_report.h"
#include "entrodraft/launch/options/preset_options.h"

#include "entrodraft/dist/session.h"

namespace entrodraft::launch {

// Of kind speed or alpha. The report counts on the coordinator; elsewhere it is empty. Throws OrderlyFailure.
// Collective over the world.
PresetReport run_preset(dist::Session& session, const Preset& preset, const PresetOptions& options, bool& is_mine);

} // namespace entrodraft::launch
