// All weights of a model that one rank holds, packed for the kernels, and their loading.
//
// What the layers compute with them is the decoder's. Called by decoder.
#pragma once

#include "model/cpu/parallel_linear.h"
#include "model/families/config.h"
#include "model/files/checkpoint.h"
#include "model/host/thread_team.h"
#include "model/weights/rank_shard.h"
#include "model/weights/sources.h"

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

namespace entrodraft::model {

struct ExpertWeights {
    ColumnLinear gate, up;
    RowLinear down;
    std::array<ShardedLinear*, 3> linears() { return {&gate, &up, &down}; } // as ExpertSources has them
};

struct DeltaNetWeights : DeltaNetVectors {
    // [key_dim], all alike: RMSNorm of them makes vectors of length 1, queries scaled as scores are
    std::vector<float> query_scale, key_scale;
};

struct LayerWeights {
    NormWeights attention_norm, mlp_norm;             // before or after their half: see Block
    NormWeights after_attention_norm, after_mlp_norm; // Block::sandwich
    NormWeights query_norm, key_norm;                 // [head_dim], or of own heads
    std::vector<float> sinks;                         // [own query heads]
    ColumnLinear qkv;                                 // see LayerShapes: of linear attention linear_in
    RowLinear output;
    DeltaNetWeights delta_net;
    ColumnLinear gate; // of a gated MLP
    ColumnLinear up;
    RowLinear down;
    // In the order in which a pass reads them and LayerSources has them.
    std::array<ShardedLinear*, 5> linears() { return {&qkv, &output, &gate, &up, &down}; }
    // Of a layer that attends to a source, as CrossSources has them.
    NormWeights cross_norm;
    ColumnLinear cross_query, cross_key_value;
    RowLinear cross_output;
    // Of a layer with experts, whose gate, up and down are those of the shared one.
    ColumnLinear router; // of whole experts, float32, then the shared one's scale; the same on all ranks
    std::vector<float> router_correction;
    std::vector<ExpertWeights> experts; // of RankShard::experts
    // Of latent attention.
    NormWeights query_down_norm, key_value_down_norm;
    ColumnLinear query_up;
    std::vector<ColumnLinear> absorb, expand; // [own query heads]
    std::array<ShardedLinear*, 3> cross_linears() { return {&cross_query, &cross_key_value, &cross_output}; }
};

// Of a draft head (ModelConfig::fusion).
struct FusionWeights {
    std::vector<NormWeights> feature_norms;
    ColumnLinear feature_projection;
    ColumnLinear linear, skip;
    NormWeights embedding_norm, state_norm, sum_norm, cell_norm;
    std::vector<ColumnLinear> cells, residual_blocks;
    std::vector<RowLinear> residual_outputs;
};

// How far loading has come, in bytes as they will lie in memory. Called by one thread.
using LoadProgress = std::function<void(std::size_t done, std::size_t total)>;

class ModelWeights {
  public:
    // Reads the rank's slice, each thread of `team` what it will multiply with. Throws BadFile, std::bad_alloc. Local.
    ModelWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard, WeightType type,
                 ThreadTeam& team, const LoadProgress& progress = {});

    // The logits' matrix: the embedding's where the two are tied.
    const PackedMatrix& head() const { return tied_ ? embedding.table() : own_head.matrix(); }
    VocabEmbedding embedding;
    std::vector<float> positions; // learned or sinusoidal, [max_positions + position_offset][hidden_size]
    NormWeights embedding_norm;
    std::vector<float> relative_biases; // [own query heads][2 max_distance + 1], by distance
    ColumnLinear project_in;            // where embeddings are narrower than the layers
    FusionWeights fusion;
    std::vector<LayerWeights> layers;
    NormWeights final_norm;
    ColumnLinear project_out;
    ColumnLinear own_head;
    std::vector<float> head_bias;   // [padded vocabulary of the rank] or empty
    std::size_t bytes_per_pass = 0; // read by a pass of one row
    double operations_per_row = 0;  // multiply-adds times two, attention not counted
    struct LayerWork {
        std::size_t bytes = 0;
        double operations = 0;
    };
    std::vector<LayerWork> layer_work; // of the two, each layer's part, but for attention to a source

  private:
    class Loader;

    bool tied_;
    WeightArena arena_;
};

} // namespace entrodraft::model
