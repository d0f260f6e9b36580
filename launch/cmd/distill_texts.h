// Texts that distill learns from: made by an engine, read again by the target. Collective over the world.
#pragma once

#include "launch/load/drafters.h"
#include "spec/distill/target_scorer.h"

#include <vector>

namespace entrodraft::launch {

// What the pair's target writes behind the prompts, batch by batch, drafted by the pair's draft where there is one.
// Requests count on the coordinator, where the texts are, in their order; of a text that failed no tokens. Throws
// OrderlyFailure (kStopped) where a signal came first.
std::vector<std::vector<spec::TokenId>> continue_all(dist::Session& session, ModelPair& models,
                                                     const std::vector<spec::Request>& requests, bool quiet);

// Fills in, on all ranks, what the pair's target has at the places of texts, which the first rank has.
void score_all(dist::Session& session, ModelPair& models, const spec::ScorerOptions& options,
               std::vector<spec::ScoredText>& texts, bool quiet);

// The first rank's on all.
void share_all(dist::Session& session, std::vector<spec::ScoredText>& texts);

} // namespace entrodraft::launch
