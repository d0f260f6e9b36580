// The state that the threads of a CPU share in the passes of a decoder or an encoder. Activations are [kMaxRows][...]
// of float32. Matrix outputs are padded to whole units of 16. Called by ops, decoder, encoder.
#pragma once

#include "model/cpu/attention.h"
#include "model/cpu/weights.h"
#include "model/host/buffer.h"
#include "model/pass/delta_plan.h"
#include "model/pass/pass_layout.h"
#include "model/pass/routing.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace entrodraft::model {

// The parts that differ from those of a decoder without an encoder.
struct CpuTextShape {
    int n_rows = kMaxRows;             // of x and qkv; an encoder's are those of its longest source
    VocabEmbedding embedding = {};     // without a table: the weights' own
    KvCache* sources = nullptr;        // keys and values of sources that a decoder's rows attend to
    RetrievedChunks* chunks = nullptr; // for texts of which the cache keeps a part
};

inline std::size_t padded(int outputs) {
    return index((outputs + kernels::kLanes - 1) / kernels::kLanes * kernels::kLanes);
}

inline std::size_t joined_width(const ModelConfig& config) {
    return index(std::max(config.fusion.width(), config.fusion.joined_size(config.hidden_size)));
}

struct CpuWorkspace {
    // The arguments outlive this object.
    CpuWorkspace(const ModelConfig& model, const RankShard& held, const ModelWeights& packed, KvCache& cache,
                 int threads, const CpuTextShape& text = {});

    // Throws std::invalid_argument on rows that break decoder.h's contract.
    void begin_pass(const Pass& pass, KvCache& cache);
    void merge_summaries();
    void plan_delta_nets(RecurrentStates& states);
    // Makes buffers for latent attention, experts and draft heads. Returns the inputs of their widest matrix.
    int make_buffers_of_some();

    const int n_threads;
    const ModelConfig& config;
    const RankShard& shard;
    const ModelWeights& weights;
    KvCache& texts; // the decoder's cache
    const VocabEmbedding embedding;
    Attention attention;
    std::optional<Attention> cross_attention; // for a decoder that reads sources
    PassLayout layout;                        // of the current pass

    Buffer x;        // [hidden_size, padded], n_text_rows rows: the residual stream
    Buffer delta;    // like x: input of the norm in add_normed(), or an expert's rows
    Buffer embedded; // [embedding_size, padded], for a narrower embedding
    std::size_t qkv_stride = 0;
    Buffer qkv;      // own query heads, key heads, value heads; n_text_rows rows
    Buffer attended; // [own query heads][attended_dim()]; for linear attention [own value heads][value_dim]
    Buffer gate, up; // own part of the MLP's width; in a layer with experts, of the shared expert's
    Buffer squares;  // [2], for QueryKeyNorm::row: sums over own query heads and key heads

    // For linear attention.
    std::vector<DeltaPlan> delta_plans; // [segments] of the pass
    Buffer delta_states;                // [threads][DeltaPlan::n_states][group][key_dim][value_dim]
    std::size_t delta_state_floats = 0; // per thread
    // [key_dim], all alike: RMSNorm with them makes keys of length 1, and queries scaled as scores are.
    std::vector<float> query_scale, key_scale;

    // For latent attention.
    Buffer queries;                         // [own query heads][head_dim], made from their vectors
    Buffer latent_queries, latent_attended; // [own query heads][key_dim()] and [value_dim()]

    // For layers with experts.
    Buffer router_products;              // [n_experts], padded; then the shared expert's scale
    std::vector<ChosenExpert> chosen;    // [kMaxRows][n_chosen]
    std::vector<ExpertRows> expert_rows; // [threads], all alike
    Buffer expert_gate, expert_up;       // [kMaxRows * n_chosen][own part of an expert's width]
    Buffer expert_from;                  // [threads][kMaxRows][hidden_size]: an expert's rows
    Buffer features; // [largest of hidden_size, padded, projected_size() and fusion.width()], for a draft head
    Buffer wide;     // [joined_width()]: input of the projection, then the joined vectors
    Buffer logits;   // own vocabulary
    Buffer normed;   // [threads][kMaxRows][hidden_size]
    Buffer scratch;  // [threads][scratch_floats], for PackedMatrix::multiply
    std::size_t scratch_floats;
    std::size_t features_stride = 0;
    std::vector<float> hidden;                  // [hidden_layers][rows][hidden_size]
    std::vector<kernels::LaneStats> lane_stats; // [threads][kMaxRows]
    std::vector<LogitStats> summary_parts;      // [threads][kMaxRows]
    std::vector<LogitStats> summaries;          // [logit_rows]
};

} // namespace entrodraft::model
