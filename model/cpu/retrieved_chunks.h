// Finds the best chunks of a text, for a cache that keeps only a part of the text: the chunks whose mean keys score
// highest, for each head of each layer (Sun et al. 2024, TriForce).
//
// In the kept cache, the chunks follow its first positions, in order. Their keys and values come from a cache of whole
// texts. This cache belongs to another decoder with the same weights, or to this object, and passes fill it. Called by
// attention.
#pragma once

#include "model/cpu/kernels.h"
#include "model/host/buffer.h"
#include "model/pass/decoder.h"
#include "model/pass/kv_cache.h"

#include <memory>
#include <span>
#include <vector>

namespace entrodraft::model {

class RetrievedChunks {
  public:
    // `whole`: a cache of the texts in the slots of `kept`. If null, makes one with `max_positions` per slot. `kept`
    // outlives this.
    RetrievedChunks(std::shared_ptr<KvCache> whole, KvCache& kept, const RetrievalOptions& options, int max_positions,
                    int n_threads);

    // Writes a row's key and value at its position in the text, unless another decoder owns the whole texts' cache.
    void write(const KvCache::HeadPlace& place, const float* key, const float* value);

    // A head's queries, and the parameters of their scores.
    struct Queries {
        std::span<const float* const> rows; // [key_dim] each
        float scale = 1, soft_cap = 0;
    };
    // Puts the best chunks of a layer's head into the kept cache. Threads call it for different heads.
    void retrieve(const kernels::Kernels& kernels, int thread, const Retrieval& of, int layer, int kv_head,
                  const Queries& queries);

  private:
    static constexpr int kSize = RetrievalOptions::kChunk;
    static_assert(KvCache::kBlock % kSize == 0); // a chunk's keys lie in one block

    KvCache::HeadPlace place_of_chunk(int slot, int layer, int kv_head, int chunk) const;
    void add_means(const Retrieval& of, int layer, int kv_head);
    void vote(const kernels::Kernels& kernels, int thread, const kernels::AttentionArgs& scoring,
              const Queries& queries);

    struct Thread {
        Buffer scores;            // [kMaxQueries][chunks]
        std::vector<float> votes; // [chunks]: attention of all queries to mean keys
        std::vector<int> best;
    };

    bool writes_; // into whole_
    std::shared_ptr<KvCache> whole_;
    KvCache& kept_;
    RetrievalOptions options_;
    KvCache means_; // keys only: chunk c of a text is position c
    std::vector<Thread> threads_;
};

} // namespace entrodraft::model
