// Computes the chances of a round's outcomes. An outcome is the number of accepted drafted tokens, and the token that
// follows them. The chances depend on the facts about the drafted tokens.
//
// A token's chance is learnt as expected-gain learns it (acceptance_model.h). After a rejection, the target's token is
// the m-th of the draft's other candidates with a chance that is learnt as well. Called by draft_ahead.
#pragma once

#include "spec/plan/acceptance_model.h"
#include "spec/protocol/packet.h"

#include <span>
#include <vector>

namespace entrodraft::spec {

// The tokens that may be emitted at one place of a draft, or after its last token.
struct Place {
    DraftedToken first;              // the drafted token; after the last one: the draft's first candidate
    std::vector<TokenId> candidates; // the most likely first; without the drafted token, if there is one
};

struct Outcome {
    int accepted = 0;
    TokenId next = -1; // emitted after the accepted tokens
    double chance = 0;
};

class OutcomeModel {
  public:
    explicit OutcomeModel(int max_candidates);

    // The most likely `most` outcomes of a round in which places.size() - 1 tokens were drafted, the most likely first.
    std::vector<Outcome> most_likely(std::span<const Place> places, int most) const;
    // Learns how the round ended.
    void learn(std::span<const Place> places, const Outcome& outcome);

  private:
    double share(std::size_t rank) const { return seen_at_[rank] / seen_; }

    AcceptanceModel chances_;
    std::vector<double> seen_at_; // [candidate]: how often it was emitted after a rejection
    double seen_ = 0;             // number of rejections, whatever was emitted
};

} // namespace entrodraft::spec
