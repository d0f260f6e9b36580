// The encoder of an encoder-decoder model on the threads of a CPU: reads a source once, and leaves the keys and values
// that the decoder's layers attend to. Not the decoder's passes. Called by cpu/decoder.
#pragma once

#include "model/cpu/workspace.h"
#include "model/host/thread_team.h"
#include "model/pass/decoder.h"

#include <span>
#include <vector>

namespace entrodraft::model {

class CpuEncoder {
  public:
    // Reads the rank's slice of the encoder's weights. What is handed over outlives it: `decoder`, whose embedding it
    // may share and whose layers make the keys and values, and `sources`, which keeps them. Throws BadFile.
    CpuEncoder(const Checkpoint& checkpoint, const DecoderSetup& setup, const DecoderOptions& options, ThreadTeam& team,
               const ModelWeights& decoder, KvCache& sources);

    // Keeps the source's keys and values as number `to`. `decoder` lends its buffers. Collective over the ranks that
    // hold the model.
    void run(std::span<const TokenId> source, int to, PassContext context, CpuWorkspace& decoder);

  private:
    ModelConfig config_;
    RankShard shard_;
    ModelWeights weights_;
    const ModelWeights& decoder_;
    KvCache& sources_;
    KvCache cache_; // keys and values of the layer at hand
    CpuWorkspace workspace_;
};

} // namespace entrodraft::model
