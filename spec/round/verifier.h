// The coordinator's verification of a round: applies the chosen rule of acceptance to the gathered rows.
//
// The rules themselves are in verify.h. Called by the coordinator.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/round/target_rows.h"
#include "spec/verify/verify.h"

#include <memory>
#include <vector>

namespace entrodraft::spec {

struct VerifiedRound {
    Verification verification;
    int last_accepted = -1;      // of the drafted tokens; -1: none is accepted
    std::vector<double> margins; // of each emitted token, for greedy and gumbel text
    double overlap = 0;          // sum over verified tokens of sum min(p / lenience, q)
    int overlaps = 0;            // number of terms of that sum; 0: not known
};

class Verifier {
  public:
    virtual ~Verifier() = default;
    // Verifies the drafted tokens by their rows. The first row decides the token at `position`. Throws
    // std::runtime_error if a value is NaN, and NothingToSay if the text reaches a row in which every token is banned.
    virtual VerifiedRound verify(const TargetRows& rows, const Draft& draft, const Request& request,
                                 std::uint64_t position) = 0;
};

// Verifies by the rule of acceptance of the options.
std::unique_ptr<Verifier> make_verifier(const VerifyOptions& options);
// Accepts each drafted token with `probability`, whatever it is. The text then has no meaning, but the rest of a round
// costs as usual.
std::unique_ptr<Verifier> make_synthetic_verifier(std::unique_ptr<Verifier> verifier, double probability);

} // namespace entrodraft::spec
