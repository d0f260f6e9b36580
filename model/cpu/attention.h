// Computes the attention of a pass over this rank's heads: positions, cache, scores, values.
//
// The projections before and after it are not here. All threads of the team call append, then attend; they share heads,
// rows and queries. Called by cpu/ops.
#pragma once

#include "model/cpu/parallel_linear.h"
#include "model/cpu/retrieved_chunks.h"
#include "model/cpu/weights.h"
#include "model/host/buffer.h"
#include "model/pass/pass_layout.h"
#include "model/weights/positions.h"
#include "model/weights/rank_shard.h"

#include <optional>
#include <span>
#include <vector>

namespace entrodraft::model {

class Attention {
  public:
    // Sources of keys for rows that do not attend to their own text by the pass's mask.
    struct Reads {
        bool all = false; // an encoder's rows, or a decoder's that read a source, see all that the cache holds
        const KvCache* texts = nullptr;              // a decoder's own cache, which numbers the sources of `cache`
        std::span<const float> relative_biases = {}; // from read_relative_biases()
        RetrievedChunks* chunks = nullptr;           // of the texts; null: the cache keeps all of them or none
    };
    // Caches and chunks outlive it.
    Attention(const ModelConfig& config, const RankShard& shard, KvCache& cache, int n_threads, const Reads& reads);

    // Makes angles or biases of positions up to and including `position`. Not while a pass runs.
    void cover(int position);

    // The data of one layer's attention.
    struct Task {
        const PassLayout* layout = nullptr;
        const HeldWeights* weights = nullptr; // for query and key norms
        int layer = 0, cache_layer = 0;       // cache_layer as KvCache counts layers
        Activations qkv;      // own query heads, key heads, value heads; queries are changed. Latent: queries only
        Activations attended; // [own query heads][value_dim()]
    };
    // Norms and rotates queries and keys, and appends the rows' keys and values to the cache. A barrier must come
    // before. Called by all threads.
    void append(const PassContext& context, const Task& task);
    // For latent attention: norms the vectors of keys and values, rotates the keys after them, and appends both to the
    // cache. Called by all threads.
    void append_latent(const PassContext& context, const Task& task, Activations latent);
    // Rotates the first `dims` numbers of a head by its position's angles in this layer.
    void rotate(const kernels::Kernels& kernels, int layer, int position, float* head) const;
    // Computes the attended values. A barrier must follow. Called by all threads after append.
    void attend(const PassContext& context, const Task& task);

  private:
    // A key head of this rank and the query heads that read it: [first_query, first_query + n_queries).
    struct Group {
        int first_query = 0;
        int n_queries = 0;
    };

    void place(const PassContext& context, const Task& task, const Segment& segment, int row, int kv_head);
    void attend(const PassContext& context, const Task& task, const Bundle& bundle);
    void put(const Task& task, const Segment& segment, int row, int kv_head, const float* key, const float* value);
    void retrieve(const PassContext& context, const Task& task, const Retrieval& of);
    // Attends for queries [first, first + count) of a bundle's (row, query head of the group) pairs.
    void attend_some(const PassContext& context, const Task& task, const Bundle& bundle, int kv_head, int first,
                     int count);
    // Puts query `i` of a call, which is of this row and head, into the arguments.
    void set_query(kernels::AttentionArgs& args, int i, int thread, const Task& task, int row, int query_head);
    // Writes into a thread's memory for query `i` the biases that positions add to the scores of the row's keys:
    // relative positions; in trees ALiBi, and minus infinity before the `window` (0: none).
    const float* row_biases(int i, int thread, const Task& task, int row, int query_head, int n_keys, int window);
    int memory_slot(int slot) const { return texts_ ? texts_->source(slot) : slot; }
    bool own_heads() const { return static_cast<int>(groups_.size()) % n_threads_ == 0; }

    const ModelConfig* config_;
    KvCache* cache_;
    bool reads_all_;
    const KvCache* texts_;
    RetrievedChunks* chunks_;
    int n_threads_;
    int n_query_heads_;
    std::vector<Group> groups_; // [own key heads]
    std::optional<RotaryTable> rotary_, local_rotary_;
    std::vector<float> slopes_;       // ALiBi, [own query heads]
    std::span<const float> relative_; // [own query heads][2 max_distance + 1], by distance, beginning at -max_distance
    Buffer biases_;                   // ALiBi: [own query heads][capacity], scaled as scores are
    Buffer row_biases_;               // as scores_
    int covered_ = 0;                 // positions of biases_
    Buffer scores_;                   // [threads][kMaxQueries][capacity]
};

} // namespace entrodraft::model
