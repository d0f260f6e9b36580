// All weights of a model that one rank holds, packed for the kernels, and their loading. model/weights/layer_plan.h
// plans the tensors; the decoder has the layers' computations. Called by decoder.
#pragma once

#include "model/cpu/parallel_linear.h"
#include "model/families/config.h"
#include "model/files/checkpoint.h"
#include "model/host/thread_team.h"
#include "model/pass/decoder.h"
#include "model/weights/planned_values.h"

#include <cstddef>
#include <vector>

namespace entrodraft::model {

// The tensors of a layer, or those around the layers.
using HeldWeights = HeldTensors<ShardedLinear, VectorValues>;

class ModelWeights {
  public:
    // Reads the rank's slice: each thread of `team` reads what it will multiply. Throws BadFile, std::bad_alloc.
    ModelWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                 const DecoderOptions& options, ThreadTeam& team);

    // Returns the logits' matrix: the embedding's if the two are tied.
    const PackedMatrix& head() const { return outer[tied_ ? Role::embedding : Role::head].matrix(); }
    VocabEmbedding embedding() const { return {&outer[Role::embedding].matrix(), vocab_}; }
    HeldWeights outer;
    std::vector<HeldWeights> layers;
    std::size_t bytes_per_pass = 0; // read by a pass of one row
    double operations_per_row = 0;  // multiply-adds times two, attention not counted
    struct LayerWork {
        std::size_t bytes = 0;
        double operations = 0;
    };
    std::vector<LayerWork> layer_work; // each layer's part of the two, without attention to a source

  private:
    class Loader;

    bool tied_;
    dist::Slice vocab_;
    WeightArena arena_;
};

} // namespace entrodraft::model
