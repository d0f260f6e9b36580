// A row of logits as its model chooses from it: every token with the value that it is chosen by, and who is how far up.
//
// Called by the recorder, for figures; drafting itself never needs more than the best (token_choice.h).
#pragma once

#include "spec/request.h"

#include <cstdint>
#include <span>
#include <vector>

namespace entrodraft::spec {

class Ranking {
  public:
    // Of processed logits, for the token at `position`: by logit, or where `noisy` by logit / temperature + noise
    // among what the filters leave. Local.
    Ranking(std::span<const float> logits, const Request& request, std::uint64_t position, bool noisy);

    // The first `n` tokens, the best first, ties by their ids; fewer where fewer can be emitted. Local.
    std::vector<TokenId> first(std::size_t n) const;
    // Tokens that go before this one; -1 where it cannot be emitted. Local.
    std::int32_t rank(TokenId token) const;
    // The best value less the second-best: +inf where there is no second. Local.
    float margin() const;

  private:
    std::vector<double> values_; // -inf: cannot be emitted
};

} // namespace entrodraft::spec
