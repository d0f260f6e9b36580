// The encoder of an encoder-decoder model on the threads of a CPU. It reads a source once and leaves the keys and
// values that the decoder's layers attend to. The decoder's passes are not here. Called by cpu/decoder.
#pragma once

#include "model/cpu/workspace.h"
#include "model/host/thread_team.h"
#include "model/pass/decoder.h"

#include <span>

namespace entrodraft::model {

class CpuEncoder {
  public:
    // Reads the rank's slice of the encoder's weights. The arguments outlive this object: `decoder`, whose embedding it
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
    KvCache cache_; // keys and values of the current layer
    CpuWorkspace workspace_;
};

} // namespace entrodraft::model
