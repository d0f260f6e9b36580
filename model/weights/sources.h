// Which stored rows and columns make up each matrix that a rank holds. Both devices load by it.
#pragma once

#include "dist/shard.h"
#include "model/families/names.h"
#include "model/weights/rank_shard.h"

#include <array>
#include <vector>

namespace entrodraft::model {

// Rows of a stored matrix (and of its bias).
struct StoredSlice {
    const TensorNames* tensor = nullptr;
    dist::Slice rows;
    std::int64_t step = 1; // from row to row: of rows.size() of them, from rows.begin on
};

struct MatrixSource {
    std::vector<StoredSlice> rows; // one behind the other
    dist::Slice inputs;
    bool transposed = false; // stored [in, out]
};

struct LayerSources {
    // gate: of gated MLPs only. Of a layer with experts the last three are the shared one's, without rows where there
    // is none.
    MatrixSource qkv, output, gate, up, down;
    std::array<const MatrixSource*, 5> all() const { return {&qkv, &output, &gate, &up, &down}; }
};
// Of layer `number`, whose names `layer` are; they must outlive the result. Local.
LayerSources layer_sources(const ModelConfig& config, const ModelNames& names, const LayerNames& layer, int number,
                           const RankShard& shard);

// Of expert `expert` of a layer; `of_expert` are expert()'s and must outlive the result. Local.
struct ExpertSources {
    MatrixSource gate, up, down;
    std::array<const MatrixSource*, 3> all() const { return {&gate, &up, &down}; }
};
ExpertSources expert_sources(const ModelConfig& config, const ModelNames& names, const LayerNames& layer,
                             const ExpertNames& of_expert, int expert, const RankShard& shard);
// Of a layer with experts: the router, and behind it the shared expert's scale, where there is one. Every rank has all
// of it. Local.
MatrixSource router_source(const ModelConfig& config, const LayerNames& layer);

// Of latent attention: queries out of their vector, and, of each own head, what makes of a query one as keys are cached
// and of attended vectors a value. Local.
struct LatentSources {
    MatrixSource query_up; // no rows where queries are made of the row
    std::vector<MatrixSource> absorb, expand;
};
LatentSources latent_sources(const ModelConfig& config, const LayerNames& layer, const RankShard& shard);

// Of a layer that attends to a source: its queries, its keys and values of own heads, its output. Local.
struct CrossSources {
    MatrixSource query, key_value, output;
    std::array<const MatrixSource*, 3> all() const { return {&query, &key_value, &output}; }
};
CrossSources cross_sources(const ModelConfig& config, const LayerNames& layer, const RankShard& shard);

struct OuterSources {
    MatrixSource embedding;                        // no rows where a draft head or an encoder has none
    MatrixSource head;                             // no rows where it is the embedding
    MatrixSource project_in, project_out;          // no rows where embeddings are as wide as layers
    MatrixSource feature_projection, fusion, skip; // of a draft head
    std::vector<MatrixSource> cells;               // input gate, candidate, output gate
    std::vector<MatrixSource> residual_blocks, residual_outputs;
};
// `names` must outlive the result. Local.
OuterSources outer_sources(const ModelConfig& config, const ModelNames& names, const RankShard& shard);

// Of a norm over `weight.size()` elements; no weight: no norm. RMSNorm has no bias.
struct NormWeights {
    std::vector<float> weight;
    std::vector<float> bias;
};

// Of a layer with linear attention, beside its matrices.
struct DeltaNetVectors {
    std::vector<float> convolution;             // [own key heads][n_convolved][convolved_size()]
    std::vector<float> decay_rates, decay_bias; // [own value heads]; rates are below 0
    NormWeights norm;                           // [value_dim]
};
DeltaNetVectors read_delta_net(const Checkpoint& checkpoint, const ModelConfig& config, const LayerNames& layer,
                               const RankShard& shard);

// The small tensors, in float32.
std::vector<float> read_vector(const Checkpoint& checkpoint, const std::string& name);
// The biases of stored rows, one after another; none where the layer has no bias. Local.
std::vector<float> read_biases(const Checkpoint& checkpoint, const std::vector<StoredSlice>& rows);
// A norm's weights, the offset added that its family stores them without, and all times `scale`; none for a name that
// is empty. Local.
NormWeights read_norm(const Checkpoint& checkpoint, const TensorNames& names, float offset, float scale = 1);
// Of a layer's attention, [own query heads]; none where it has no sinks. Local.
std::vector<float> read_sinks(const Checkpoint& checkpoint, const LayerNames& names, const RankShard& shard);
// A norm of queries or keys: of QueryKeyNorm::row the part of `heads`, which the rank has. Local.
NormWeights own_heads_of(const ModelConfig& config, NormWeights norm, const dist::Slice& heads);
// Learned positions, or sinusoidal ones, [max_positions + position_offset][hidden_size]; else none. Local.
std::vector<float> read_positions(const Checkpoint& checkpoint, const ModelConfig& config, const ModelNames& names);
// Of Positions::relative, [own query heads][2 max_distance + 1]: what a head's scores gain by how far a key is behind
// the row, from -max_distance on; distances beyond are as these. Else none. Local.
std::vector<float> read_relative_biases(const Checkpoint& checkpoint, const ModelConfig& config,
                                        const ModelNames& names, const RankShard& shard);
// Which of the stored ones, [n_buckets][n_heads], each of these is. Local.
std::vector<std::int64_t> relative_bias_indices(const ModelConfig& config, const RankShard& shard);
// The bias of logits, [own outputs]; none where there is none. Local.
std::vector<float> read_head_bias(const Checkpoint& checkpoint, const ModelConfig& config, const ModelNames& names,
                                  const RankShard& shard);

} // namespace entrodraft::model
