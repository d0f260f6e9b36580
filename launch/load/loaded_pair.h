// Has the models of a run in memory: the decoders of target, drafts and head, on the ranks that need them. Called by
// model_pair.
#pragma once

#include "launch/load/placed_pair.h"
#include "model/pass/decoder.h"
#include "spec/draft/sharded_draft_model.h"
#include "spec/gpu/device_round.h"

#include <memory>
#include <vector>

namespace entrodraft::launch {

struct LoadedPair {
    std::unique_ptr<spec::DeviceRound> device_round;     // on ranks whose models are on a GPU
    std::unique_ptr<model::Decoder> target;              // on ranks with a shard
    std::vector<std::unique_ptr<model::Decoder>> drafts; // on draft owners: one for each --draft, the largest first
    std::vector<std::unique_ptr<model::Decoder>> head_decoders; // the head's modules, on draft owners
    std::unique_ptr<spec::ShardedDraftModel> sharded_draft;     // on all ranks, where the draft is sharded across them
    double target_pass_bytes = 0; // bytes of weights that a pass reads on a rank with a shard
    int max_prompt_rows = 0;      // Decoder::max_prompt_rows() of the ranks with a shard; on all ranks
    double seconds = 0;           // time to read all weights, on the slowest rank
    std::uint64_t bytes = 0;      // bytes of weights in the files that all ranks read together
};

// Reads the weights. If the device was left to the program, GPUs must hold the models and compute as another
// implementation does. Else that implementation computes, and `placed` says so. Throws OrderlyFailure. Collective over
// the world.
void load(dist::Session& session, const OpenedPair& opened, const ModelOptions& options, PlacedPair& placed,
          LoadedPair& loaded);

} // namespace entrodraft::launch
