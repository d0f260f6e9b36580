// Computes a bound on all chains of a draft: the number of tokens that each round would draft if the text were known.
//
// Pure. Called by Replay, for simulate, and by bench compare.
#pragma once

#include "spec/protocol/stats.h"

#include <span>
#include <vector>

namespace entrodraft::spec {

// A round that begins at a place of a text.
struct PlaceChain {
    int longest = 0;  // most tokens that it can draft
    int accepted = 0; // leading tokens of these that are accepted
};

// For each place: the number of tokens that a round there drafts, so that this round and those after it cost least.
// Dynamic programming from the last place to the first. A round may draft nothing. It may also draft past a rejected
// token, if the measured costs say that more rows cost less. `costs` price rounds as predicted_seconds() does.
std::vector<int> cheapest_drafts(std::span<const PlaceChain> places, const Costs& costs);

} // namespace entrodraft::spec
