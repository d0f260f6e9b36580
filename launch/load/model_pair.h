// Target and draft, opened, placed and loaded: everything a run needs before its first round.
//
// Called by all commands that decode, collectively. Every failure is one message and one code on all ranks.
#pragma once

#include "launch/io/requests.h"
#include "launch/load/loaded_pair.h"
#include "spec/draft/head_texts.h"
#include "spec/round/engine.h"

#include <memory>
#include <optional>

namespace entrodraft::launch {

// In the order in which they are made. opened.target.config has the positions of the run.
struct ModelPair {
    OpenedPair opened;
    PlacedPair placed;
    LoadedPair loaded;

    PromptLimits prompt_limits() const;
    // What bounds every draft of this pair.
    spec::DraftLimits draft_limits() const;
    // Of the drafter `head`; on draft owners. Null: there is no head.
    std::optional<spec::HeadModules> head_modules() const;
    // Of an engine over this pair. `drafter` counts on the coordinator.
    spec::EngineParts engine_parts(spec::Drafter* drafter);
};

// Operations of a draft's row over those of the target's, all ranks together; 0 without a draft model, and on ranks
// that do not draft.
double operations_ratio(const ModelPair& models);

// Throws OrderlyFailure. Collective over the world.
std::unique_ptr<ModelPair> open_models(dist::Session& session, const ModelOptions& options, const Placement& placement);

} // namespace entrodraft::launch
