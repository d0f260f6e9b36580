// The coordinator's verification of a round: what was gathered, put before the rule of acceptance that was asked for.
//
// The rules themselves are in verify.h. Called by the round.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/sequence_rows.h"
#include "spec/verify/verify.h"

#include <span>
#include <vector>

namespace entrodraft::spec {

struct VerifiedRound {
    Verification verification;
    std::vector<double> margins; // of each token emitted, where the run records them
    double overlap = 0;          // sum over verified tokens of sum min(p / lenience, q)
    int overlaps = 0;            // how many these are; 0: not known
};

class Verifier {
  public:
    explicit Verifier(const VerifyOptions& options) : options_(options) {}

    // Of the drafted tokens and their rows, the first of which decides what is at `position`. Throws
    // std::runtime_error on values that are no numbers, NothingToSay where the text has come to a row in which every
    // token is banned. Local, on the coordinator.
    VerifiedRound verify(const SequenceRows& rows, const Draft& draft, const Request& request, std::uint64_t position);

  private:
    VerifiedRound verify_best(const SequenceRows& rows, std::span<const TokenId> drafted) const;
    VerifiedRound verify_on_device(const SequenceRows& rows, std::size_t n_drafted, const Request& request,
                                   std::uint64_t position);
    void read_rows(const SequenceRows& rows, std::size_t n_rows, const Request& request);
    void add_overlaps(const Draft& draft, VerifiedRound& verified) const;

    VerifyOptions options_;
    std::vector<float> p_;                        // [rows][vocab_size]
    std::vector<model::VerifiedRow> device_rows_; // [rows]
    std::size_t dead_row_ = 0;                    // the first in which every token is banned
};

} // namespace entrodraft::spec
