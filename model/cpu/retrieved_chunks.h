// The best chunks of a text for a cache that keeps a part of it: those whose mean keys score highest (Sun et al. 2024,
// TriForce), for each head of each layer its own.
//
// They lie behind the kept cache's first positions, in order. Keys and values come from a cache of whole texts: another
// decoder's of the same weights, or one of its own that passes fill. Called by attention.
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
    // `whole`: of the texts in the slots of `kept`; null: it makes one, of `max_positions` a slot. `kept` outlives
    // this.
    RetrievedChunks(std::shared_ptr<KvCache> whole, KvCache& kept, const RetrievalOptions& options, int max_positions,
                    int n_threads);

    // A row's key and value, at its position in the text; nothing where the cache of whole texts is another's.
    void write(const KvCache::HeadPlace& place, const float* key, const float* value);

    // A head's queries, and how they score.
    struct Queries {
        std::span<const float* const> rows; // [key_dim] each
        float scale = 1, soft_cap = 0;
    };
    // Puts the best chunks of a layer's head in their place. Threads call it for different heads.
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

    bool writes_; // into the next
    std::shared_ptr<KvCache> whole_;
    KvCache& kept_;
    RetrievalOptions options_;
    KvCache means_; // keys alone: chunk c of a text is position c
    std::vector<Thread> threads_;
};

} // namespace entrodraft::model
