// The encoder of an encoder-decoder model on a GPU: reads a source in chunks as prompts have them, and leaves the keys
// and values that the decoder's layers attend to. Not a graph: a source is read once. Called by gpu/decoder.
#pragma once

#include "model/gpu/device_cache.h"
#include "model/gpu/ops.h"
#include "model/pass/decoder.h"

#include <span>

namespace entrodraft::model::gpu {

class GpuEncoder {
  public:
    // Reads the rank's slice of the encoder's weights. What is handed over outlives it: `decoder`, whose embedding it
    // may share and whose layers make the keys and values, `sources`, which keeps them, and `products`, of the
    // decoder's prompts, or null. Throws BadFile, dist::Error, dist::Timeout.
    GpuEncoder(const Checkpoint& checkpoint, const DecoderSetup& setup, const DecoderOptions& options,
               GpuWorkspace& decoder, const BookedCache& sources, PromptProducts* products);

    // Puts the reading of a source, which is kept as number `to`, on the decoder's stream; the stream is waited for
    // before the next. Collective over the ranks that hold the model.
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
    BookedCache cache_; // keys and values of the layer at hand
    GpuWorkspace workspace_;
    PinnedArray<PromptTable> host_tables_; // of a source's chunks
    DeviceArray<PromptTable> tables_;
};

} // namespace entrodraft::model::gpu
