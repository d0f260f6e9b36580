// Computes the target's figures at each place of given texts: its most likely tokens, the probability mass of the other
// tokens, and one token drawn from the others.
//
// Texts are read like prompts, many rows a pass. The target, another model or a person may have written them. Called by
// the command distill on all ranks.
#pragma once

#include "dist/comm/communicator.h"
#include "model/pass/decoder.h"
#include "model/torch/trainer.h"

#include <cstdint>

namespace entrodraft::spec {

using model::torch::ScoredText;

struct ScorerOptions {
    int vocab_size = 0; // tokens that count, from the first of the vocabulary
    int n_top = 64;     // most likely tokens of a place
    std::uint64_t seed = 0;
    double timeout_seconds = dist::kDefaultTimeoutSeconds;
};

class TargetScorer {
  public:
    // `target` is this rank's shard, null if it holds none. `replica` has the ranks that call score(); its first rank
    // collects. All outlive it.
    TargetScorer(const ScorerOptions& options, model::Decoder* target, dist::Communicator& replica);

    // Fills in the places of a text whose tokens and n_prompt are the same on all ranks. All ranks then have the same
    // places. Each text needs its own `key`, by which tokens are drawn. Collective over the replica.
    void score(ScoredText& text, std::uint64_t key);

  private:
    ScorerOptions options_;
    model::Decoder* target_;
    dist::Communicator& replica_;
};

// Gives all ranks the first rank's text. Collective over the ranks.
void broadcast(ScoredText& text, dist::Communicator& ranks, dist::Deadline deadline);

} // namespace entrodraft::spec
