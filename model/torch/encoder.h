// The encoder of an encoder-decoder model on ATen. It reads a source in one pass and leaves the keys and values that
// the decoder's layers attend to. Called by torch/decoder.
#pragma once

#include "model/pass/decoder.h"
#include "model/torch/workspace.h"

#include <span>

namespace entrodraft::model::torch {

class TorchEncoder {
  public:
    // Reads the rank's slice of the encoder's weights, as tensors of `numbers`. The arguments outlive this object:
    // `decoder`'s embedding may be shared, and its layers make the keys and values. Throws BadFile, c10::Error.
    TorchEncoder(StoredTensors& stored, const DecoderSetup& setup, const at::TensorOptions& numbers,
                 const TensorWeights& decoder, dist::Communicator& tp);

    // Returns the source's keys and values, differentiable in training. Collective over the ranks that hold the model.
    SourceKeysAndValues read(std::span<const TokenId> source, bool in_training, dist::Deadline deadline);
    // Keeps them in `sources` as number `to`. Collective likewise.
    void keep(std::span<const TokenId> source, const BookedTensors& sources, int to, dist::Deadline deadline);

  private:
    ModelConfig config_;
    RankShard shard_;
    TensorWeights weights_;
    const TensorWeights& decoder_;
    BookedTensors cache_; // keys and values of the current layer
    BookedTensors none_;
    TorchWorkspace workspace_;
    KvCache::Shape kept_; // shape of the cache of sources
};

} // namespace entrodraft::model::torch
