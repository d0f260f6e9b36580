// Roles, replicas and refusals of make_layout.
#include "dist/layout/layout.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <tuple>

namespace layout_test {

using namespace entrodraft::dist;

std::string refusal(int world_size, int replicas, DraftPlacement placement) {
    try {
        make_layout(0, world_size, replicas, placement);
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

TEST(RankLayout, GivesAWorldOfOneEveryRole) {
    const RankLayout layout = make_layout(0, 1, 1, DraftPlacement::colocated);
    EXPECT_TRUE(layout.is_coordinator());
    EXPECT_TRUE(layout.owns_draft());
    EXPECT_TRUE(layout.holds_target());
    EXPECT_TRUE(layout.is_writer());
    EXPECT_EQ(layout.tp_size, 1);
}

TEST(RankLayout, ColocatedDraftsOnTheFirstTargetRankOnly) {
    for (int rank = 0; rank < 4; ++rank) {
        const RankLayout layout = make_layout(rank, 4, 1, DraftPlacement::colocated);
        EXPECT_EQ(layout.tp_rank, rank);
        EXPECT_EQ(layout.tp_size, 4);
        EXPECT_EQ(layout.owns_draft(), rank == 0);
        EXPECT_EQ(layout.is_coordinator(), rank == 0);
    }
}

TEST(RankLayout, DedicatedKeepsTheTargetOffTheDrafter) {
    for (int rank = 0; rank < 3; ++rank) {
        const RankLayout layout = make_layout(rank, 3, 1, DraftPlacement::dedicated);
        EXPECT_EQ(layout.tp_size, 2);
        EXPECT_EQ(layout.tp_rank, rank - 1);
        EXPECT_EQ(layout.holds_target(), rank != 0);
        EXPECT_EQ(layout.owns_draft(), rank == 0);
    }
}

TEST(RankLayout, ShardedDraftsOnEveryRank) {
    for (int rank = 0; rank < 4; ++rank) {
        const RankLayout layout = make_layout(rank, 4, 2, DraftPlacement::sharded);
        EXPECT_TRUE(layout.owns_draft());
        EXPECT_EQ(layout.is_coordinator(), rank % 2 == 0);
        EXPECT_EQ(layout.tp_size, 2);
    }
}

TEST(RankLayout, EveryReplicaHasOneCoordinatorAndTheWorldOneWriter) {
    for (const auto placement : {DraftPlacement::colocated, DraftPlacement::dedicated, DraftPlacement::sharded}) {
        for (int replicas : {1, 2, 3}) {
            const int world = replicas * 4;
            std::set<std::tuple<int, int>> places;
            std::multiset<int> coordinators;
            int writers = 0;
            for (int rank = 0; rank < world; ++rank) {
                const RankLayout layout = make_layout(rank, world, replicas, placement);
                EXPECT_EQ(layout.world_rank, rank);
                EXPECT_EQ(layout.replica_size, 4);
                EXPECT_LT(layout.tp_rank, layout.tp_size);
                places.insert({layout.replica, layout.replica_rank});
                if (layout.is_coordinator()) coordinators.insert(layout.replica);
                writers += layout.is_writer() ? 1 : 0;
            }
            EXPECT_EQ(places.size(), static_cast<std::size_t>(world));
            EXPECT_EQ(coordinators.size(), static_cast<std::size_t>(replicas));
            EXPECT_EQ(writers, 1);
        }
    }
}

TEST(RankLayout, NamesTheReplicaCountsThatWorkWhenTheWorldDoesNotDivide) {
    const std::string message = refusal(6, 4, DraftPlacement::colocated);
    EXPECT_NE(message.find("--replicas 4"), std::string::npos) << message;
    EXPECT_NE(message.find("1, 2, 3, 6"), std::string::npos) << message;
    EXPECT_NE(message.find("multiple of 4"), std::string::npos) << message;
}

TEST(RankLayout, NamesTheRankCountADedicatedDrafterNeeds) {
    const std::string message = refusal(3, 3, DraftPlacement::dedicated);
    EXPECT_NE(message.find("at least 6 ranks"), std::string::npos) << message;
    EXPECT_NE(message.find("colocated"), std::string::npos) << message;
}

TEST(RankLayout, RefusesSizesThatMakeNoSense) {
    EXPECT_NE(refusal(2, 0, DraftPlacement::colocated), "");
    EXPECT_NE(refusal(2, -1, DraftPlacement::colocated), "");
    EXPECT_NE(refusal(0, 1, DraftPlacement::colocated), "");
    EXPECT_THROW(make_layout(2, 2, 1, DraftPlacement::colocated), std::invalid_argument);
    EXPECT_THROW(make_layout(-1, 2, 1, DraftPlacement::colocated), std::invalid_argument);
}

} // namespace layout_test
