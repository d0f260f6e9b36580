// Which chunks of a whole text are put in place, and what then lies there.
#include "model/cpu/retrieved_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace entrodraft::model {
namespace retrieved_chunks_test {

constexpr int kChunk = RetrievalOptions::kChunk, kDim = 32, kValueDim = 48, kSlots = 2, kPositions = 400;
constexpr KvCache::Shape kWhole = {.n_layers = 2,
                                   .n_kv_heads = 2,
                                   .head_dim = kDim,
                                   .n_slots = kSlots,
                                   .capacity = kPositions,
                                   .value_dim = kValueDim,
                                   .type = WeightType::int8};

class RetrievedChunksTest : public testing::Test {
  protected:
    std::vector<float> numbers(int n) {
        std::vector<float> drawn(static_cast<std::size_t>(n));
        for (float& number : drawn)
            number = normal_(random_);
        return drawn;
    }

    void fill(KvCache& cache, int slot, int end) {
        for (int position = cache.length(slot); position < end; ++position)
            for_each_head([&](int layer, int head) {
                cache.put({layer, slot, head, position}, numbers(kDim).data(), numbers(kValueDim).data());
            });
        cache.append(slot, end - cache.length(slot));
    }

    template <typename Visit> static void for_each_head(Visit visit) {
        for (int layer = 0; layer < kWhole.n_layers; ++layer)
            for (int head = 0; head < kWhole.n_kv_heads; ++head)
                visit(layer, head);
    }

    static std::vector<float> key_of(KvCache& cache, int layer, int slot, int head, int position) {
        if (position < cache.prefix(slot).length) slot = cache.prefix(slot).slot;
        std::vector<float> key(kDim);
        cache.read({layer, slot, head, position}, key.data(), nullptr);
        return key;
    }
    static std::vector<float> value_of(KvCache& cache, int layer, int slot, int head, int position) {
        if (position < cache.prefix(slot).length) slot = cache.prefix(slot).slot;
        std::vector<float> value(kValueDim);
        cache.read({layer, slot, head, position}, nullptr, value.data());
        return value;
    }

    // In order of their positions: by softmax of scale * query . mean key, summed over queries, in float64.
    static std::vector<int> best_chunks(KvCache& whole, int layer, int slot, int head, const RetrievalOptions& options,
                                        int end, const std::vector<std::vector<float>>& queries, double scale) {
        std::vector<double> votes(static_cast<std::size_t>(end / kChunk));
        for (const std::vector<float>& query : queries) {
            std::vector<double> weights(votes.size());
            for (int chunk = options.first_chunk(); chunk < end / kChunk; ++chunk) {
                double score = 0;
                for (int i = 0; i < kChunk; ++i) {
                    const std::vector<float> key = key_of(whole, layer, slot, head, chunk * kChunk + i);
                    score += std::inner_product(key.begin(), key.end(), query.begin(), 0.0) / kChunk;
                }
                weights[static_cast<std::size_t>(chunk)] = std::exp(scale * score);
            }
            const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
            for (std::size_t chunk = 0; chunk < votes.size(); ++chunk)
                votes[chunk] += weights[chunk] / sum;
        }
        std::vector<int> best(votes.size());
        std::iota(best.begin(), best.end(), 0);
        std::ranges::sort(best, std::greater(), [&](int chunk) { return votes[static_cast<std::size_t>(chunk)]; });
        best.resize(static_cast<std::size_t>(options.chunks));
        std::ranges::sort(best);
        return best;
    }

    // Of every head and layer, with queries of their own.
    void expect_the_best(RetrievedChunks& chunks, KvCache& whole, KvCache& kept, const RetrievalOptions& options,
                         const Retrieval& of) {
        for_each_head([&](int layer, int head) {
            std::vector<std::vector<float>> queries;
            std::vector<const float*> rows;
            for (int i = 0; i < 8; ++i) // more than a call of the kernel takes
                queries.push_back(numbers(kDim));
            for (const std::vector<float>& query : queries)
                rows.push_back(query.data());
            chunks.retrieve(kernels::best_kernels(), 0, of, layer, head, {rows, 0.7F, 0});
            const std::vector<int> best = best_chunks(whole, layer, of.slot, head, options, of.end, queries, 0.7);
            for (std::size_t i = 0; i < best.size(); ++i)
                for (int j = 0; j < kChunk; ++j) {
                    const int at = options.sinks + static_cast<int>(i) * kChunk + j, from = best[i] * kChunk + j;
                    EXPECT_EQ(key_of(kept, layer, of.slot, head, at), key_of(whole, layer, of.slot, head, from)) << at;
                    EXPECT_EQ(value_of(kept, layer, of.slot, head, at), value_of(whole, layer, of.slot, head, from));
                }
        });
    }

    static KvCache::Shape kept_shape() {
        KvCache::Shape shape = kWhole;
        shape.capacity = 160;
        return shape;
    }

    std::mt19937 random_{7};
    std::normal_distribution<float> normal_;
};

TEST_F(RetrievedChunksTest, ThoseWithTheMostAttentionTakeThePlacesBehindTheSinks) {
    for (const int sinks : {0, 4, 13}) {
        const auto whole = std::make_shared<KvCache>(kWhole);
        KvCache kept(kept_shape());
        const RetrievalOptions options = {sinks, 6};
        RetrievedChunks chunks(whole, kept, options, kPositions, 1);
        fill(*whole, 0, 200);
        fill(kept, 0, 150);
        fill(*whole, 1, 390);
        fill(kept, 1, 150);
        const int last_sink = std::max(sinks - 1, 0);
        const std::vector<float> sink = key_of(kept, 1, 0, 1, last_sink);
        const std::vector<float> behind = key_of(kept, 1, 0, 1, sinks + 6 * kChunk);
        expect_the_best(chunks, *whole, kept, options, {0, 0, 200});
        expect_the_best(chunks, *whole, kept, options, {1, 0, 304});
        expect_the_best(chunks, *whole, kept, options, {1, 304, 384}); // the means of the first stay as they are
        EXPECT_EQ(key_of(kept, 1, 0, 1, last_sink) == sink, sinks > 0);
        EXPECT_EQ(key_of(kept, 1, 0, 1, sinks + 6 * kChunk), behind);
    }
}

TEST_F(RetrievedChunksTest, BlocksThatAnotherSlotHoldsAreReadThere) {
    const auto whole = std::make_shared<KvCache>(kWhole);
    KvCache kept(kept_shape());
    RetrievedChunks chunks(whole, kept, {4, 3}, kPositions, 1);
    fill(*whole, 0, 128);
    whole->share(0, 1, 120); // of which the last 8 are copied
    fill(*whole, 1, 160);
    fill(kept, 1, 150);
    expect_the_best(chunks, *whole, kept, {4, 3}, {1, 0, 160});
}

TEST_F(RetrievedChunksTest, WithoutACacheOfWholeTextsRowsAreWrittenToOne) {
    KvCache written(kWhole), kept(kept_shape());
    RetrievedChunks chunks(nullptr, kept, {4, 5}, kPositions, 1);
    fill(written, 1, 300);
    for (int position = 0; position < 300; ++position)
        for_each_head([&](int layer, int head) {
            chunks.write({layer, 1, head, position}, key_of(written, layer, 1, head, position).data(),
                         value_of(written, layer, 1, head, position).data());
        });
    expect_the_best(chunks, written, kept, {4, 5}, {1, 0, 296});
}

} // namespace retrieved_chunks_test
} // namespace entrodraft::model
