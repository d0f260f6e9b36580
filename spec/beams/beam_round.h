// What a round's rows make of a beam search: one token where nothing is drafted, and one more for each level of drafted
// tokens among which all beams of the target are.
//
// So the search takes the steps that it takes without drafts. Called by the coordinator.
#pragma once

#include "spec/beams/beam_search.h"
#include "spec/verify/token_tree.h"

#include <functional>

namespace entrodraft::spec {

// The last tokens of the running beams, which the target has yet to read, and the rows of the round before that they
// follow (-1: the prompt): the first rows of the next round.
struct BeamEnds {
    std::vector<TokenId> tokens;
    std::vector<std::int8_t> parents;
};

struct BeamOutcome {
    BeamEnds ends;    // none where the search has ended
    int accepted = 0; // levels
};

// Levels of drafted tokens.
int levels_of(std::size_t n_ends, Parents parents);

// The rows are those of `n_ends` beams and of the drafted tokens, whose parents are places among these rows;
// `candidates` of a row are asked for as the search gets there.
BeamOutcome advance(BeamSearch& search, std::size_t n_ends, std::span<const TokenId> drafted, Parents parents,
                    const std::function<std::vector<BeamCandidate>(std::size_t row)>& candidates);

} // namespace entrodraft::spec
