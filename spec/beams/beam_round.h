// Advances a beam search by a round: by one token, and by one more for each level of drafted tokens that contains all
// beams of the target.
//
// So the search takes the same steps as without drafts. Called by the coordinator.
#pragma once

#include "spec/beams/beam_search.h"
#include "spec/verify/token_tree.h"

#include <functional>

namespace entrodraft::spec {

// The last tokens of the running beams, and the rows of the last round that they follow (-1: the prompt). The target
// has not read these tokens: they are the first rows of the next round.
struct BeamEnds {
    std::vector<TokenId> tokens;
    std::vector<std::int8_t> parents;
};

struct BeamOutcome {
    BeamEnds ends;    // empty if the search has ended
    int accepted = 0; // levels
};

// Number of levels of drafted tokens.
int levels_of(std::size_t n_ends, Parents parents);

// Advances the search by a round's rows: first `n_ends` rows of beams, then the drafted tokens' rows, whose parents are
// places among all these rows. Calls `candidates` for a row when the search reaches it.
BeamOutcome advance(BeamSearch& search, std::size_t n_ends, std::span<const TokenId> drafted, Parents parents,
                    const std::function<std::vector<BeamCandidate>(std::size_t row)>& candidates);

} // namespace entrodraft::spec
