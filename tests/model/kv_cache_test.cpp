// The cache's bookkeeping on numbers that say where they belong; what a forward pass makes of it is in decoder_test.
#include "entrodraft/model/kv_cache.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace {

using entrodraft::model::KvCache;

const KvCache::Shape kShape = {.n_layers = 2, .n_kv_heads = 3, .head_dim = 5, .n_slots = 3, .capacity = 60};

std::size_t key_offset(int position, int d) {
    return static_cast<std::size_t>(position / KvCache::kBlock * kShape.head_dim * KvCache::kBlock +
                                    d * KvCache::kBlock + position % KvCache::kBlock);
}

float mark(int layer, int slot, int head, int position, int d) {
    return static_cast<float>(layer * 100000 + slot * 10000 + head * 1000 + position * 10 + d);
}

// Calls visit(layer, head, d, key, value) for all that a slot holds at a position.
template <typename Visit> void for_each(KvCache& cache, int slot, int position, Visit visit) {
    for (int layer = 0; layer < kShape.n_layers; ++layer)
        for (int head = 0; head < kShape.n_kv_heads; ++head)
            for (int d = 0; d < kShape.head_dim; ++d)
                visit(layer, head, d, cache.keys(layer, slot, head)[key_offset(position, d)],
                      cache.values(layer, slot, head)[position * kShape.head_dim + d]);
}

void fill(KvCache& cache, int slot, int n_positions) {
    for (int position = cache.length(slot), end = position + n_positions; position < end; ++position)
        for_each(cache, slot, position, [&](int layer, int head, int d, float& key, float& value) {
            key = mark(layer, slot, head, position, d);
            value = -mark(layer, slot, head, position, d);
        });
    cache.append(slot, n_positions);
}

// Whether `slot` holds at `position` what was written for (from_slot, from_position).
void expect_holds(KvCache& cache, int slot, int position, int from_slot, int from_position) {
    for_each(cache, slot, position, [&](int layer, int head, int d, float key, float value) {
        EXPECT_EQ(key, mark(layer, from_slot, head, from_position, d)) << "key at " << position;
        EXPECT_EQ(value, -mark(layer, from_slot, head, from_position, d)) << "value at " << position;
    });
}

TEST(KvCache, GrowsAndShrinksASlotWithoutTouchingTheOthers) {
    KvCache cache(kShape);
    fill(cache, 0, 40);
    fill(cache, 1, 60);
    fill(cache, 2, 1);
    EXPECT_EQ(cache.length(0), 40);
    cache.truncate(0, 17);
    EXPECT_EQ(cache.length(0), 17);
    EXPECT_EQ(cache.length(1), 60);
    EXPECT_EQ(cache.length(2), 1);
    for (int position = 0; position < 17; ++position)
        expect_holds(cache, 0, position, 0, position);
    for (int position = 0; position < 60; ++position)
        expect_holds(cache, 1, position, 1, position);
    EXPECT_EQ(cache.bytes_per_position(), 2U * 3U * 5U * 4U * 2U);
}

TEST(KvCache, RefusesToGrowPastItsCapacityAndToShrinkToWhatItDoesNotHold) {
    KvCache cache(kShape);
    const int capacity = cache.shape().capacity;
    ASSERT_GE(capacity, 60);
    cache.append(1, capacity);
    EXPECT_THROW(cache.append(1, 1), std::out_of_range);
    EXPECT_EQ(cache.length(1), capacity) << "a refused append must change nothing";
    cache.append(0, 5);
    EXPECT_THROW(cache.truncate(0, 6), std::out_of_range);
    EXPECT_THROW(cache.truncate(0, -1), std::out_of_range);
    EXPECT_EQ(cache.length(0), 5);
    cache.truncate(0, 5);
    cache.truncate(0, 0);
    EXPECT_EQ(cache.length(0), 0);
}

TEST(KvCache, AForkIsACopyThatGoesItsOwnWay) {
    for (const int length : {0, 1, 15, 16, 17, 60}) {
        KvCache cache(kShape);
        fill(cache, 0, length);
        fill(cache, 2, 33);
        cache.fork(0, 2);
        EXPECT_EQ(cache.length(2), length);
        cache.truncate(0, 0);
        fill(cache, 1, 60);
        for (int position = 0; position < length; ++position)
            expect_holds(cache, 2, position, 0, position);
        if (length < 60) {
            fill(cache, 2, 1);
            expect_holds(cache, 2, length, 2, length);
        }
    }
}

TEST(KvCache, KeepsOneBranchInOrder) {
    KvCache cache(kShape);
    fill(cache, 0, 30);
    fill(cache, 1, 30);
    const int path[] = {1, 4, 5, 16}; // across the border of a block
    cache.keep(0, 13, path);
    ASSERT_EQ(cache.length(0), 17);
    for (int position = 0; position < 13; ++position)
        expect_holds(cache, 0, position, 0, position);
    for (int i = 0; i < 4; ++i)
        expect_holds(cache, 0, 13 + i, 0, 13 + path[i]);
    for (int position = 0; position < 30; ++position)
        expect_holds(cache, 1, position, 1, position);
}

TEST(KvCache, KeepingAChainsBeginningIsTruncatingAndKeepingNothingForgetsTheRest) {
    KvCache cache(kShape);
    fill(cache, 0, 20);
    const int chain[] = {0, 1, 2};
    cache.keep(0, 10, chain);
    ASSERT_EQ(cache.length(0), 13);
    for (int position = 0; position < 13; ++position)
        expect_holds(cache, 0, position, 0, position);
    cache.keep(0, 11, {});
    EXPECT_EQ(cache.length(0), 11);
}

TEST(KvCache, RefusesAPathThatDoesNotIncreaseOrLeavesTheCachedRows) {
    KvCache cache(kShape);
    fill(cache, 0, 20);
    const int back[] = {2, 1}, twice[] = {2, 2}, far[] = {0, 10}, negative[] = {-1}, good[] = {0};
    EXPECT_THROW(cache.keep(0, 10, back), std::out_of_range);
    EXPECT_THROW(cache.keep(0, 10, twice), std::out_of_range);
    EXPECT_THROW(cache.keep(0, 10, far), std::out_of_range);
    EXPECT_THROW(cache.keep(0, 10, negative), std::out_of_range);
    EXPECT_THROW(cache.keep(0, 21, {}), std::out_of_range);
    EXPECT_THROW(cache.keep(0, -5, good), std::out_of_range);
    EXPECT_EQ(cache.length(0), 20);
    for (int position = 0; position < 20; ++position)
        expect_holds(cache, 0, position, 0, position);
}

TEST(KvCache, RefusesASizeBeyondAllAddresses) {
    constexpr int kMost = 1 << 30; // what a config may say; the product would be 2^66, which is 0 in 64 bits
    EXPECT_THROW(KvCache({.n_layers = 1 << 2, .n_kv_heads = kMost, .head_dim = kMost, .n_slots = 1, .capacity = 1}),
                 std::bad_alloc);
}

} // namespace
