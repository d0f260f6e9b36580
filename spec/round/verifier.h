// The coordinator's verification of a round: what was gathered, put before the rule of acceptance that was asked for.
//
// The rules themselves are in verify.h. Called by the round.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/round/target_rows.h"
#include "spec/verify/verify.h"

#include <memory>
#include <vector>

namespace entrodraft::spec {

struct VerifiedRound {
    Verification verification;
    int last_accepted = -1;      // of the drafted tokens; -1: none is
    std::vector<double> margins; // of each token emitted, of greedy and gumbel text
    double overlap = 0;          // sum over verified tokens of sum min(p / lenience, q)
    int overlaps = 0;            // how many these are; 0: not known
};

class Verifier {
  public:
    virtual ~Verifier() = default;
    // Of the drafted tokens and their rows, the first of which decides what is at `position`. Throws
    // std::runtime_error on values that are no numbers, NothingToSay where the text has come to a row in which every
    // token is banned.
    virtual VerifiedRound verify(const TargetRows& rows, const Draft& draft, const Request& request,
                                 std::uint64_t position) = 0;
};

// By the rule of acceptance of the options.
std::unique_ptr<Verifier> make_verifier(const VerifyOptions& options);
// Each drafted token is accepted with `probability`, whatever it is: what is emitted means nothing, and the rest of a
// round costs what it costs.
std::unique_ptr<Verifier> make_synthetic_verifier(std::unique_ptr<Verifier> verifier, double probability);

} // namespace entrodraft::spec
