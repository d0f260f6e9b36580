// What the target has at each place of given texts: its most likely tokens, the mass of the others, and one of these.
//
// Texts are read as prompts are, many rows a pass, whoever wrote them: the target, another model, a person. Called by
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
    // `target` is this rank's shard, null where it holds none; `replica` the ranks that call score(), the first of
    // which collects. All outlive it.
    TargetScorer(const ScorerOptions& options, model::Decoder* target, dist::Communicator& replica);

    // Fills in the places of a text whose tokens and n_prompt are the same on all ranks; they then have the same
    // places. `key` tells texts apart where tokens are drawn. Collective over the replica.
    void score(ScoredText& text, std::uint64_t key);

  private:
    ScorerOptions options_;
    model::Decoder* target_;
    dist::Communicator& replica_;
};

// The first rank's text on all. Collective over the ranks.
void broadcast(ScoredText& text, dist::Communicator& ranks, dist::Deadline deadline);

} // namespace entrodraft::spec
