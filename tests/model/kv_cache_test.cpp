// The cache's bookkeeping on numbers that say where they belong; what a forward pass makes of it is in decoder_test.
#include "model/pass/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kv_cache_test {

using entrodraft::model::KvCache;
using entrodraft::model::WeightType;

constexpr WeightType kTypes[] = {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8};

const KvCache::Shape kShape = {.n_layers = 2, .n_kv_heads = 3, .head_dim = 5, .n_slots = 3, .capacity = 60};

std::size_t key_offset(int position, int d) {
    return static_cast<std::size_t>(position / KvCache::kBlock * kShape.head_dim * KvCache::kBlock +
                                    d * KvCache::kBlock + position % KvCache::kBlock);
}

float mark(int layer, int slot, int head, int position, int d) {
    return static_cast<float>(layer * 100000 + slot * 10000 + head * 1000 + position * 10 + d);
}

float* keys_of(KvCache& cache, int layer, int slot, int head) {
    return reinterpret_cast<float*>(cache.head(layer, slot, head).keys);
}

float* values_of(KvCache& cache, int layer, int slot, int head) {
    return reinterpret_cast<float*>(cache.head(layer, slot, head).values);
}

// Calls visit(layer, head, d, key, value) for all that a slot holds at a position, in another slot or itself.
template <typename Visit> void for_each(KvCache& cache, int slot, int position, Visit visit) {
    if (position < cache.prefix(slot).length) slot = cache.prefix(slot).slot;
    for (int layer = 0; layer < kShape.n_layers; ++layer)
        for (int head = 0; head < kShape.n_kv_heads; ++head)
            for (int d = 0; d < kShape.head_dim; ++d)
                visit(layer, head, d, keys_of(cache, layer, slot, head)[key_offset(position, d)],
                      values_of(cache, layer, slot, head)[position * kShape.head_dim + d]);
}

// Marks the next positions as those of `as`, or of the slot itself.
void fill(KvCache& cache, int slot, int n_positions, int as = -1) {
    const int marked = as < 0 ? slot : as;
    for (int position = cache.length(slot), end = position + n_positions; position < end; ++position)
        for_each(cache, slot, position, [&](int layer, int head, int d, float& key, float& value) {
            key = mark(layer, marked, head, position, d);
            value = -mark(layer, marked, head, position, d);
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
    EXPECT_EQ(KvCache::bytes_of_position(WeightType::float32, 5, 5), 5U * 4U * 2U);
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

// ---- shared beginnings ----

void expect_holds_all(KvCache& cache, int slot, int begin, int end, int from_slot) {
    for (int position = begin; position < end; ++position)
        expect_holds(cache, slot, position, from_slot, position);
}

TEST(KvCache, AShareReadsWholeBlocksWhereTheyLieAndGoesItsOwnWay) {
    for (const int length : {0, 1, 15, 16, 17, 40, 48, 50}) {
        SCOPED_TRACE(length);
        KvCache cache(kShape);
        fill(cache, 0, 50);
        fill(cache, 2, 60); // what the slot held before is forgotten
        cache.share(0, 2, length);
        EXPECT_EQ(cache.length(2), length);
        EXPECT_EQ(cache.prefix(2).length, length / 16 * 16);
        EXPECT_EQ(cache.prefix(2).slot, length < 16 ? 2 : 0);
        EXPECT_EQ(cache.prefix(0).length, 0);
        fill(cache, 2, 10);
        cache.truncate(0, length / 16 * 16); // the source too goes another way
        fill(cache, 0, 12, 1);
        expect_holds_all(cache, 2, 0, length, 0);
        expect_holds_all(cache, 2, length, length + 10, 2);
    }
}

TEST(KvCache, AShareCopiesNoWholeBlock) {
    KvCache cache(kShape);
    fill(cache, 0, 40);
    cache.share(0, 1, 37);
    EXPECT_EQ(keys_of(cache, 1, 1, 2)[key_offset(31, 0)], 0.0F);
    EXPECT_EQ(keys_of(cache, 1, 1, 2)[key_offset(32, 0)], mark(1, 0, 2, 32, 0));
    EXPECT_EQ(values_of(cache, 1, 1, 2)[31 * kShape.head_dim], 0.0F);
    EXPECT_EQ(values_of(cache, 1, 1, 2)[32 * kShape.head_dim], -mark(1, 0, 2, 32, 0));
}

TEST(KvCache, AShareOfAShareReadsTheSlotThatHoldsTheBlocks) {
    for (const int length : {12, 20, 32, 36, 44, 50}) {
        SCOPED_TRACE(length);
        KvCache cache(kShape);
        fill(cache, 0, 40);
        cache.share(0, 1, 36);
        fill(cache, 1, 14);
        cache.share(1, 2, length);
        EXPECT_EQ(cache.prefix(2).length, std::min(length / 16 * 16, 32));
        if (length >= 16) {
            EXPECT_EQ(cache.prefix(2).slot, 0);
        }
        cache.truncate(1, 0); // the one between may go
        fill(cache, 1, 60, 2);
        expect_holds_all(cache, 2, 0, std::min(length, 36), 0);
        expect_holds_all(cache, 2, 36, length, 1);
        EXPECT_THROW(cache.truncate(0, cache.prefix(2).length - 1), std::logic_error);
    }
}

TEST(KvCache, AContinuationGoesBackIntoItsSource) {
    KvCache cache(kShape);
    fill(cache, 0, 40);
    cache.share(0, 1, 37);
    cache.share(0, 2, 35);
    fill(cache, 1, 9);
    cache.share(1, 0, 46);
    EXPECT_EQ(cache.length(0), 46);
    EXPECT_EQ(cache.prefix(0).length, 0);
    expect_holds_all(cache, 0, 0, 37, 0);
    expect_holds_all(cache, 0, 37, 46, 1);
    expect_holds_all(cache, 2, 0, 35, 0);
    EXPECT_THROW(cache.share(1, 0, 31), std::logic_error) << "two slots read 32 positions of it";
    cache.fork(1, 0);
    EXPECT_EQ(cache.prefix(0).length, 0);
    expect_holds_all(cache, 0, 37, 46, 1);
}

TEST(KvCache, RefusesToChangeWhatAnotherSlotReads) {
    KvCache cache(kShape);
    fill(cache, 0, 50);
    fill(cache, 2, 20);
    cache.share(0, 1, 40);
    const int other_branch[] = {1};
    EXPECT_THROW(cache.truncate(0, 31), std::logic_error);
    EXPECT_THROW(cache.keep(0, 31, {}), std::logic_error);
    EXPECT_THROW(cache.keep(0, 30, other_branch), std::logic_error);
    EXPECT_THROW(cache.fork(2, 0), std::logic_error);
    EXPECT_THROW(cache.share(2, 0, 0), std::logic_error);
    EXPECT_THROW(cache.share(0, 0, 31), std::logic_error);
    EXPECT_THROW(cache.share(0, 2, 51), std::out_of_range);
    EXPECT_THROW(cache.share(0, 2, -1), std::out_of_range);
    EXPECT_EQ(cache.length(0), 50);
    EXPECT_EQ(cache.length(2), 20);
    expect_holds_all(cache, 0, 0, 50, 0);
    expect_holds_all(cache, 1, 0, 40, 0);
    expect_holds_all(cache, 2, 0, 20, 2);
    cache.keep(0, 32, other_branch); // behind what is read
    cache.truncate(0, 32);
    cache.truncate(1, 0); // lets go
    EXPECT_NO_THROW(cache.fork(2, 0));
}

TEST(KvCache, ASlotCutInsideItsPrefixHoldsTheRestItself) {
    KvCache cache(kShape);
    fill(cache, 0, 50);
    cache.share(0, 1, 45);
    cache.truncate(1, 20);
    EXPECT_EQ(cache.prefix(1).length, 16);
    cache.truncate(0, 16);
    fill(cache, 0, 20, 2);
    expect_holds_all(cache, 1, 0, 20, 0);
    KvCache again(kShape);
    fill(again, 0, 50);
    again.share(0, 1, 48);
    const int branch[] = {0, 2, 9}; // of positions 13 to 47, the first stays
    again.keep(1, 13, branch);
    EXPECT_EQ(again.prefix(1).length, 0);
    again.truncate(0, 0);
    fill(again, 0, 50, 2);
    expect_holds_all(again, 1, 0, 14, 0);
    expect_holds(again, 1, 14, 0, 15);
    expect_holds(again, 1, 15, 0, 22);
}

// Slots as plain lists of numbers beside the cache.
class CacheAgainstLists {
  public:
    CacheAgainstLists(unsigned seed, WeightType type) : generator_(seed), cache_(shape_of(type)), lists_(kSlots) {}

    void step() {
        const int slot = random(kSlots), other = random(kSlots), length = random(size(slot) + 1);
        switch (random(6)) {
        case 0:
        case 1:
            return grow(slot, std::min(random(20), 64 - size(slot)));
        case 2:
            return change([&] { cache_.truncate(slot, length); }, slot, first(slot, length));
        case 3:
            return change([&] { cache_.fork(slot, other); }, other, lists_[at(slot)]);
        case 4:
            return change([&] { cache_.share(slot, other, length); }, other, first(slot, length));
        default:
            return keep(slot, length);
        }
    }

    void check() {
        for (int slot = 0; slot < kSlots; ++slot) {
            ASSERT_EQ(cache_.length(slot), size(slot));
            for (int position = 0; position < size(slot); ++position)
                ASSERT_FLOAT_EQ(number(slot, position), lists_[at(slot)][at(position)]) << slot << ", " << position;
        }
    }

    int refused() const { return refused_; }

  private:
    static constexpr int kSlots = 5;
    static KvCache::Shape shape_of(WeightType type) {
        return {.n_layers = 1, .n_kv_heads = 1, .head_dim = 1, .n_slots = kSlots, .capacity = 64, .type = type};
    }

    static std::size_t at(int value) { return static_cast<std::size_t>(value); }
    int random(int n) { return std::uniform_int_distribution<int>(0, n - 1)(generator_); }
    int size(int slot) const { return static_cast<int>(lists_[at(slot)].size()); }
    std::vector<float> first(int slot, int n) const { return {lists_[at(slot)].begin(), lists_[at(slot)].begin() + n}; }
    float number(int slot, int position) {
        if (position < cache_.prefix(slot).length) slot = cache_.prefix(slot).slot;
        float key = 0, value = 0;
        cache_.read({0, slot, 0, position}, &key, &value);
        EXPECT_EQ(key, -value);
        return key;
    }
    // Numbers that bfloat16 and float16 hold.
    float draw() {
        ++n_drawn_;
        return std::ldexp(1.0F + static_cast<float>(n_drawn_ % 128) / 128, n_drawn_ / 128 % 16 - 8);
    }
    void grow(int slot, int n) {
        for (int i = 0; i < n; ++i) {
            const float key = draw(), value = -key;
            cache_.put({0, slot, 0, size(slot)}, &key, &value);
            lists_[at(slot)].push_back(key);
        }
        cache_.append(slot, n);
    }
    template <typename Change> void change(Change make, int slot, std::vector<float> after) {
        try {
            make();
            lists_[at(slot)] = std::move(after);
        } catch (const std::logic_error&) {
            ++refused_; // check() sees that nothing has changed
        }
    }
    void keep(int slot, int length) {
        std::vector<int> path;
        std::vector<float> after = first(slot, length);
        for (int step = 0; step < size(slot) - length; ++step) {
            if (random(4) == 0) continue;
            path.push_back(step);
            after.push_back(lists_[at(slot)][at(length + step)]);
        }
        change([&] { cache_.keep(slot, length, path); }, slot, after);
    }

    std::mt19937 generator_;
    KvCache cache_;
    std::vector<std::vector<float>> lists_;
    int n_drawn_ = 0;
    int refused_ = 0;
};

TEST(KvCache, HoldsWhatPlainListsHoldAfterAnyOrderOfChanges) {
    constexpr int kSteps = 4000;
    for (unsigned seed = 0; seed < 12; ++seed) {
        CacheAgainstLists both(seed, kTypes[seed % 4]);
        for (int i = 0; i < kSteps; ++i) {
            both.step();
            both.check();
            if (testing::Test::HasFatalFailure()) return;
        }
        EXPECT_GT(both.refused(), kSteps / 100);
        EXPECT_LT(both.refused(), kSteps / 2);
    }
}

TEST(KvCache, RoundsKeysAndValuesWithinTheBoundOfItsType) {
    constexpr int kDim = 48, kPositions = 40;
    std::mt19937 generator(5);
    std::normal_distribution<float> normal(0, 3);
    for (const auto& [type, bound] : {std::pair(WeightType::float32, 0.0F),
                                      {WeightType::bfloat16, 0x1p-8F}, // of a number, as the next
                                      {WeightType::float16, 0x1p-11F},
                                      {WeightType::int8, 0.5F / 127}}) { // of the row's largest number
        KvCache cache(
            {.n_layers = 2, .n_kv_heads = 2, .head_dim = kDim, .capacity = kPositions, .value_dim = 32, .type = type});
        for (int position = 0; position < kPositions; ++position) {
            std::vector<float> row(kDim), key(kDim), value(32);
            for (float& number : row)
                number = normal(generator);
            const KvCache::HeadPlace place = {1, 0, 1, position};
            cache.put(place, row.data(), row.data() + 16);
            cache.read(place, key.data(), value.data());
            const auto size = [](float a, float b) { return std::abs(a) < std::abs(b); };
            for (std::size_t d = 0; d < key.size(); ++d) {
                const float largest = type == WeightType::int8 ? *std::ranges::max_element(row, size) : row[d];
                ASSERT_NEAR(key[d], row[d], std::abs(largest) * bound * 1.001F) << to_string(type);
            }
            for (std::size_t d = 0; d < value.size(); ++d) {
                const float largest =
                    type == WeightType::int8 ? *std::max_element(row.begin() + 16, row.end(), size) : row[16 + d];
                ASSERT_NEAR(value[d], row[16 + d], std::abs(largest) * bound * 1.001F) << to_string(type);
            }
        }
    }
}

TEST(KvCache, LargeNumbersBecomeTheLargestOfFloat16AndInfinitiesStay) {
    KvCache cache({.n_layers = 1, .n_kv_heads = 1, .head_dim = 4, .capacity = 16, .type = WeightType::float16});
    const float row[] = {1e6F, -65520, INFINITY, std::nanf("")};
    float key[4];
    cache.put({}, row, row);
    cache.read({}, key, nullptr);
    EXPECT_EQ(key[0], 65504);
    EXPECT_EQ(key[1], -65504);
    EXPECT_EQ(key[2], INFINITY);
    EXPECT_TRUE(std::isnan(key[3]));
}

TEST(KvCache, AnInt8RowOfZerosStaysThatAndOneWithoutNumbersHasNone) {
    KvCache cache({.n_layers = 1, .n_kv_heads = 1, .head_dim = 2, .capacity = 16, .type = WeightType::int8});
    const float zeros[] = {0, -0.0F}, tiny[] = {1e-38F, 0}, broken[] = {1, std::nanf("")}, endless[] = {1, INFINITY};
    float key[2], value[2];
    for (const float* row : {zeros, tiny}) {
        cache.put({0, 0, 0, 3}, row, row);
        cache.read({0, 0, 0, 3}, key, value);
        EXPECT_EQ(key[0], 0);
        EXPECT_EQ(value[1], 0);
    }
    for (const float* row : {broken, endless}) {
        cache.put({0, 0, 0, 3}, row, zeros);
        cache.read({0, 0, 0, 3}, key, value);
        EXPECT_TRUE(std::isnan(key[0]) && std::isnan(key[1]));
        EXPECT_EQ(value[0], 0);
    }
}

TEST(KvCache, RefusesASizeBeyondAllAddresses) {
    constexpr int kMax = 1 << 30; // what a config may say; the product would be 2^66, which is 0 in 64 bits
    EXPECT_THROW(KvCache({.n_layers = 1 << 2, .n_kv_heads = kMax, .head_dim = kMax, .n_slots = 1, .capacity = 1}),
                 std::bad_alloc);
}

} // namespace kv_cache_test
