// Properties of slices over many lengths, rank counts and units.
#include "dist/layout/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace shard_test {

using namespace entrodraft::dist;

TEST(EvenSlice, TilesTheAxisInOrderWithWholeUnitsAsEvenAsPossible) {
    for (std::int64_t length = 0; length <= 70; ++length) {
        for (int ranks = 1; ranks <= 9; ++ranks) {
            for (std::int64_t unit : {1, 2, 7, 64}) {
                std::int64_t expected_begin = 0;
                std::int64_t largest = std::numeric_limits<std::int64_t>::max();
                std::int64_t smallest = largest;
                for (int rank = 0; rank < ranks; ++rank) {
                    const Slice slice = even_slice(length, rank, ranks, unit);
                    ASSERT_EQ(slice.begin, expected_begin);
                    ASSERT_TRUE(slice.end == length || slice.end % unit == 0);
                    const std::int64_t units = (slice.size() + unit - 1) / unit;
                    ASSERT_LE(units, largest) << "earlier ranks take the larger parts";
                    if (rank == 0) largest = units;
                    smallest = units;
                    expected_begin = slice.end;
                }
                ASSERT_EQ(expected_begin, length);
                ASSERT_LE(largest - smallest, 1);
            }
        }
    }
}

TEST(EvenSlice, HoldsAtTheLongestAxis) {
    const std::int64_t length = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(even_slice(length, 2, 3, 64).end, length);
    EXPECT_EQ(even_slice(length, 0, 3, 64).end, even_slice(length, 1, 3, 64).begin);
}

TEST(EvenSlice, ContainsItsIndicesAndNoOthers) {
    const Slice slice = even_slice(10, 1, 3); // 4, 3, 3
    EXPECT_EQ(slice, (Slice{4, 7}));
    EXPECT_FALSE(slice.contains(3));
    EXPECT_TRUE(slice.contains(4));
    EXPECT_TRUE(slice.contains(6));
    EXPECT_FALSE(slice.contains(7));
}

TEST(EvenSlice, RefusesWhatIsNoAxis) {
    EXPECT_THROW(even_slice(-1, 0, 1), std::invalid_argument);
    EXPECT_THROW(even_slice(4, 0, 1, 0), std::invalid_argument);
    EXPECT_THROW(even_slice(4, 2, 2), std::invalid_argument);
    EXPECT_THROW(even_slice(4, 0, 0), std::invalid_argument);
}

TEST(HeadShard, KeepsEveryQueryHeadBesideItsKvHead) {
    for (int n_kv_heads : {1, 2, 4, 8}) {
        for (int heads_per_kv : {1, 2, 4}) {
            const int n_heads = n_kv_heads * heads_per_kv;
            for (int ranks : {1, 2, 4, 8}) {
                if (n_heads % ranks != 0) continue;
                std::int64_t next_query_head = 0;
                for (int rank = 0; rank < ranks; ++rank) {
                    const HeadShard shard = head_shard(n_heads, n_kv_heads, rank, ranks);
                    EXPECT_EQ(shard.query_heads.begin, next_query_head);
                    EXPECT_EQ(shard.query_heads.size(), n_heads / ranks);
                    for (std::int64_t head = shard.query_heads.begin; head < shard.query_heads.end; ++head) {
                        EXPECT_TRUE(shard.kv_heads.contains(head / heads_per_kv));
                    }
                    EXPECT_EQ(shard.kv_heads.size(), n_kv_heads >= ranks ? n_kv_heads / ranks : 1);
                    next_query_head = shard.query_heads.end;
                }
                EXPECT_EQ(next_query_head, n_heads);
            }
        }
    }
}

TEST(HeadShard, CutsHeadsThatDoNotDivideUnevenly) {
    for (const auto& [n_heads, n_kv_heads] : std::vector<std::pair<int, int>>{
             {71, 1}, {25, 25}, {14, 2}, {24, 6}, {10, 5}, {12, 4}, {7, 7}, {128, 8}, {6, 3}}) {
        const int group = n_heads / n_kv_heads;
        for (int ranks = 1; ranks <= std::min(n_heads, 9); ++ranks) {
            std::int64_t next_query_head = 0, kv_copies = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                const HeadShard shard = head_shard(n_heads, n_kv_heads, rank, ranks);
                EXPECT_EQ(shard.query_heads.begin, next_query_head);
                EXPECT_GT(shard.query_heads.size(), 0);
                EXPECT_EQ(shard.kv_heads.begin, shard.query_heads.begin / group);
                EXPECT_EQ(shard.kv_heads.end, (shard.query_heads.end - 1) / group + 1);
                EXPECT_LE(shard.query_heads.size(), n_kv_heads >= ranks ? (n_kv_heads + ranks - 1) / ranks * group
                                                                        : (n_heads + ranks - 1) / ranks + 1);
                next_query_head = shard.query_heads.end;
                kv_copies += shard.kv_heads.size();
            }
            EXPECT_EQ(next_query_head, n_heads);
            if (n_kv_heads >= ranks) {
                EXPECT_EQ(kv_copies, n_kv_heads); // none is held twice
            } else if (ranks % n_kv_heads == 0) {
                EXPECT_EQ(kv_copies, ranks); // one a rank
            }
        }
    }
}

TEST(HeadShard, RefusesWhatCannotBeCut) {
    EXPECT_THROW(head_shard(10, 4, 0, 2), std::invalid_argument);
    EXPECT_THROW(head_shard(8, 0, 0, 2), std::invalid_argument);
    try {
        head_shard(4, 2, 0, 5);
        ADD_FAILURE() << "4 heads over 5 ranks were accepted";
    } catch (const std::invalid_argument& error) {
        EXPECT_NE(std::string(error.what()).find("at most 4"), std::string::npos) << error.what();
    }
}

} // namespace shard_test
