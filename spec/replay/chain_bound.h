// The bound on all chains of a draft: how many tokens each round would draft if the text were known.
//
// Pure. Called by Replay, for simulate, and by bench compare.
#pragma once

#include "spec/protocol/stats.h"

#include <span>
#include <vector>

namespace entrodraft::spec {

// A round that begins at some place of a text.
struct PlaceChain {
    int longest = 0;  // tokens that it can draft
    int accepted = 0; // of these, from the first on
};

// The tokens that the round which begins at each place drafts, so that this round and those after it cost least.
// Dynamic programming from the last place to the first. A round may draft nothing, and may draft past a token that is
// rejected where a measured table says that more rows cost less. `costs` price rounds as predicted_seconds() does.
std::vector<int> cheapest_drafts(std::span<const PlaceChain> places, const Costs& costs);

} // namespace entrodraft::spec
