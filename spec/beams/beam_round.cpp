#include "spec/beams/beam_round.h"

#include <algorithm>
#include <numeric>

namespace entrodraft::spec {

namespace {

// The row of the drafted token after `parent`; -1: it was not drafted.
int row_of(TokenId token, int parent, std::size_t n_ends, std::span<const TokenId> drafted, Parents parents) {
    for (std::size_t i = 0; i < drafted.size(); ++i)
        if (drafted[i] == token && parents[i] == parent) return static_cast<int>(n_ends + i);
    return -1;
}

} // namespace

int levels_of(std::size_t n_ends, Parents parents) {
    std::vector<int> levels; // of each token
    int most = 0;
    for (int i = 0; i < static_cast<int>(parents.size()); ++i) {
        const int parent = parent_of(parents, i) - static_cast<int>(n_ends);
        levels.push_back(parent < 0 ? 1 : levels[parent] + 1);
        most = std::max(most, levels.back());
    }
    return most;
}

BeamOutcome advance(BeamSearch& search, std::size_t n_ends, std::span<const TokenId> drafted, Parents parents,
                    const std::function<std::vector<BeamCandidate>(std::size_t row)>& candidates) {
    BeamOutcome outcome;
    std::vector<int> rows(n_ends); // of the running beams
    std::iota(rows.begin(), rows.end(), 0);
    for (;; ++outcome.accepted) {
        std::vector<std::vector<BeamCandidate>> candidates_of_beams;
        for (const int row : rows)
            candidates_of_beams.push_back(candidates(static_cast<std::size_t>(row)));
        search.step(candidates_of_beams);
        if (search.ended()) return outcome;
        std::vector<int> next;
        bool all_drafted = true;
        for (const BeamSearch::Beam& beam : search.running()) {
            const int parent = rows[beam.parent];
            outcome.ends.tokens.push_back(beam.tokens.back());
            outcome.ends.parents.push_back(static_cast<std::int8_t>(parent));
            next.push_back(row_of(beam.tokens.back(), parent, n_ends, drafted, parents));
            all_drafted = all_drafted && next.back() >= 0;
        }
        if (!all_drafted) return outcome;
        outcome.ends = {};
        rows = std::move(next);
    }
}

} // namespace entrodraft::spec
