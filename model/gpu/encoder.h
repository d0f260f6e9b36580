// The encoder of an encoder-decoder model on a GPU. It reads a source in chunks like prompts, and leaves the keys and
// values that the decoder's layers attend to. It makes no graph: a source is read once. Called by gpu/decoder.
#pragma once

#include "model/gpu/device_cache.h"
#include "model/gpu/ops.h"
#include "model/pass/decoder.h"

#include <span>

namespace entrodraft::model::gpu {

class GpuEncoder {
  public:
    // Reads the rank's slice of the encoder's weights. The arguments outlive this object: `decoder`, whose embedding it
    // may share and whose layers make the keys and values; `sources`, which keeps them; and `products` of the decoder's
    // prompts, or null. Throws BadFile, dist::Error, dist::Timeout.
    GpuEncoder(const Checkpoint& checkpoint, const DecoderSetup& setup, const DecoderOptions& options,
               GpuWorkspace& decoder, const BookedCache& sources, PromptProducts* products);

    // Puts the reading of a source on the decoder's stream. The source is kept as number `to`. The stream must be
    // waited for before the next call. Collective over the ranks that hold the model.
    void enqueue(std::span<const TokenId> source, int to, dist::Deadline deadline);

  private:
    int padded_rows(std::size_t tokens) const;
    int text_rows(int tokens) const;

    ModelConfig config_;
    RankShard shard_;
    DeviceWeights weights_;
    GpuWorkspace& decoder_;
    const BookedCache& sources_;
    const PromptProducts* products_;
    BookedCache cache_; // keys and values of the current layer
    GpuWorkspace workspace_;
    PinnedArray<PromptTable> host_tables_; // for a source's chunks
    DeviceArray<PromptTable> tables_;
};

} // namespace entrodraft::model::gpu
