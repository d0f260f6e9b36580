// Outcomes of a round, and how likely each is: how many drafted tokens are accepted and the token emitted after
// them, given what is known of the drafted ones.
//
// A token's chance is learnt as expected-gain learns it (acceptance_model.h). Where one is rejected, the target's token
// is the m-th of the draft's other candidates with a chance that is learnt too. Called by draft_ahead.
#pragma once

#include "spec/plan/acceptance_model.h"
#include "spec/protocol/packet.h"

#include <span>
#include <vector>

namespace entrodraft::spec {

// What may be emitted at one place of a draft, or behind its last token.
struct Place {
    DraftedToken first;              // the drafted token; behind the last: the draft's first candidate
    std::vector<TokenId> candidates; // the most likely first; where a token was drafted, the others
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
    // The round ended so.
    void learn(std::span<const Place> places, const Outcome& outcome);

  private:
    double share(std::size_t rank) const { return seen_at_[rank] / seen_; }

    AcceptanceModel chances_;
    std::vector<double> seen_at_; // [candidate]: how often it was emitted where the drafted token was rejected
    double seen_ = 0;             // how often one was rejected, whatever was emitted
};

} // namespace entrodraft::spec
