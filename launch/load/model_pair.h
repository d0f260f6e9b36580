// Opens, places and loads target and draft: everything that a run needs before its first round.
//
// All commands that decode call this, collectively. Every failure is one message and one code on all ranks.
#pragma once

#include "launch/io/requests.h"
#include "launch/load/loaded_pair.h"
#include "spec/draft/head_texts.h"

#include <memory>
#include <optional>

namespace entrodraft::launch {

// The members are made in this order. The positions of opened.target.config are those of the run.
struct ModelPair {
    OpenedPair opened;
    PlacedPair placed;
    LoadedPair loaded;

    PromptLimits prompt_limits() const;
    // Returns the limits of every draft of this pair.
    spec::DraftLimits draft_limits() const;
    // Returns the modules of the drafter `head`, on draft owners; none if there is no head.
    std::optional<spec::HeadModules> head_modules() const;
    // Returns the parts of an engine over this pair. `drafter` counts on the coordinator.
    spec::EngineParts engine_parts(spec::Drafter* drafter);
};

// Ratio of the operations of a draft's row to those of a target's row, all ranks together. It is 0 without a draft
// model, and on ranks that do not draft.
double operations_ratio(const ModelPair& models);

// Throws OrderlyFailure. Collective over the world.
std::unique_ptr<ModelPair> open_models(dist::Session& session, const ModelOptions& options, const Placement& placement);

} // namespace entrodraft::launch
