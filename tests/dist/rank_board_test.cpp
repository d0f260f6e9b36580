// What ranks can see of each other on the board, with places in ordinary memory, and the watchdog beside it.
#include "dist/rank/rank_board.h"

#include "dist/comm/node_comm.h"
#include "dist/rank/error.h"
#include "dist/rank/watchdog.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

namespace rank_board_test {

using namespace entrodraft::dist;

// Boards of several ranks of one host over the same places; the last rank is on another host.
class Host {
  public:
    explicit Host(int ranks) {
        places_.resize(static_cast<std::size_t>(ranks));
        std::vector<RankBoard::Member> members;
        for (Place& place : places_)
            members.push_back({"n1", place.bytes.data()});
        members.push_back({"n2", nullptr});
        for (int rank = 0; rank < ranks; ++rank)
            boards.push_back(std::make_unique<RankBoard>(rank, members));
    }

    std::vector<std::unique_ptr<RankBoard>> boards;

  private:
    struct alignas(RankBoard::kPlaceBytes) Place {
        std::array<std::byte, RankBoard::kPlaceBytes> bytes{};
    };
    std::vector<Place> places_;
};

void wait_seconds(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(RankBoard, TellsWhereThisRankIs) {
    const Host host(2);
    EXPECT_EQ(host.boards[1]->position(), "rank 1, host n1, start");
    host.boards[1]->enter(kNoRound, "load");
    EXPECT_EQ(host.boards[1]->position(), "rank 1, host n1, load");
    host.boards[1]->enter(17, "broadcast");
    EXPECT_EQ(host.boards[1]->position(), "rank 1, host n1, round 17, broadcast");
    host.boards[1]->enter(18, "a step whose name is too long");
    EXPECT_EQ(host.boards[1]->position(), "rank 1, host n1, round 18, a step whose na");
}

TEST(RankBoard, TellsARankThatIsBusyFromOneThatIsSilent) {
    const Host host(2);
    EXPECT_EQ(host.boards[0]->what_is_known_of(1), "rank 1 (host n1) has not come so far as to be seen");
    host.boards[1]->enter(17, "score");
    host.boards[1]->beat();
    EXPECT_TRUE(
        contains(host.boards[0]->what_is_known_of(1), "rank 1 (host n1) is alive but still in round 17, score"));
    wait_seconds(RankBoard::kSilentSeconds + 0.1);
    const std::string silent = host.boards[0]->what_is_known_of(1);
    EXPECT_TRUE(
        contains(silent, "rank 1 (host n1) has not moved since round 17, score, and given no sign of life for 1"))
        << silent;
    EXPECT_TRUE(contains(silent, "stopped or dead")) << silent;
}

TEST(RankBoard, BlamesTheEndOfAChainOfWaitingRanks) {
    const Host host(3);
    for (const auto& board : host.boards)
        board->beat();
    host.boards[2]->enter(4, "draft");
    host.boards[1]->enter(4, "score");
    host.boards[1]->begin_wait(2);
    EXPECT_TRUE(host.boards[0]->waits(1));
    const std::string chain = host.boards[0]->what_is_known_of(1);
    EXPECT_TRUE(contains(chain,
                         "rank 1 (host n1) waits in round 4, score for rank 2 (host n1), which is alive but still in "
                         "round 4, draft"))
        << chain;
    host.boards[1]->end_wait();
    EXPECT_FALSE(host.boards[0]->waits(1));
    EXPECT_TRUE(contains(host.boards[0]->what_is_known_of(1), "is alive but still in round 4, score"));
    host.boards[1]->begin_wait(RankBoard::kEverybody);
    EXPECT_TRUE(contains(host.boards[0]->what_is_known_of(1), "waits for others too"));
}

TEST(RankBoard, ComesToAnEndWhereRanksWaitForEachOther) {
    const Host host(3);
    for (const auto& board : host.boards)
        board->beat();
    host.boards[1]->begin_wait(2);
    host.boards[2]->begin_wait(1);
    EXPECT_TRUE(contains(host.boards[0]->what_is_known_of(1), "all of them wait for each other"));
    host.boards[1]->begin_wait(0);
    EXPECT_TRUE(contains(host.boards[0]->what_is_known_of(1), "waits for this rank"));
}

TEST(RankBoard, SaysThatItCannotSeeOtherHosts) {
    const Host host(2);
    EXPECT_EQ(host.boards[0]->what_is_known_of(2),
              "rank 2 (host n2) is on another host, where this rank cannot see it");
    EXPECT_FALSE(host.boards[0]->waits(2));
}

TEST(RankBoard, LetsTheFirstFailureOfTheHostSpeakForAll) {
    const Host host(3);
    EXPECT_EQ(host.boards[2]->failure().load(), 0);
    EXPECT_TRUE(host.boards[1]->claim_failure(1));
    EXPECT_FALSE(host.boards[0]->claim_failure(3));
    EXPECT_EQ(host.boards[2]->failure().load(), 1);
}

TEST(NodeComm, SaysWhatTheBoardKnowsOfTheMissingRank) {
    const Host host(2);
    host.boards[1]->enter(9, "draft");
    host.boards[1]->beat();
    struct alignas(NodeComm::kAlignment) Segment {
        std::array<std::byte, NodeComm::kSegmentBytes> bytes{};
    };
    std::vector<Segment> segments(2);
    NodeComm comm({.rank = 0,
                   .world_ranks = {0, 1},
                   .segments = {segments[0].bytes.data(), segments[1].bytes.data()},
                   .crowded = true,
                   .board = host.boards[0].get()});
    float value = 1;
    auto all_reduce = [&] { comm.all_reduce_sum(&value, 1, Deadline::after_seconds(0.2)); };
    std::future<bool> seen = std::async(std::launch::async, [&] {
        for (int i = 0; i < 2000 && !host.boards[0]->is_waiting(); ++i)
            wait_seconds(0.0001);
        return host.boards[0]->is_waiting();
    });
    try {
        all_reduce();
        ADD_FAILURE() << "an all-reduce ended without one of its ranks";
    } catch (const Timeout& timeout) {
        const std::string message = timeout.what();
        EXPECT_EQ(message.find("rank 0 waited 0."), 0U) << message;
        EXPECT_TRUE(contains(message, "in all-reduce: rank 1 (host n1) is alive but still in round 9, draft"))
            << message;
    }
    EXPECT_TRUE(seen.get()) << "a wait that lasts is on the board";
    EXPECT_GT(comm.traffic().waited_seconds, 0.19);
}

TEST(Watchdog, BeatsWhileItLives) {
    const Host host(2);
    {
        const Watchdog watchdog(*host.boards[1]);
        wait_seconds(RankBoard::kSilentSeconds + 0.3);
        EXPECT_TRUE(contains(host.boards[0]->what_is_known_of(1), "is alive"));
    }
    wait_seconds(RankBoard::kSilentSeconds + 0.1);
    EXPECT_TRUE(contains(host.boards[0]->what_is_known_of(1), "stopped or dead"));
}

TEST(Watchdog, EndsAStepThatTakesTooLongOnce) {
    const Host host(1);
    RankBoard& board = *host.boards[0];
    std::atomic<int> calls{0};
    std::promise<std::string> said;
    Watchdog watchdog(board, [&](const std::string& reason) {
        if (++calls == 1) said.set_value(reason);
    });
    auto stuck = said.get_future();
    EXPECT_EQ(stuck.wait_for(std::chrono::milliseconds(900)), std::future_status::timeout) << "nothing is bounded yet";
    watchdog.bound_steps(0.5);
    board.enter(3, "draft");
    ASSERT_EQ(stuck.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_TRUE(contains(stuck.get(), "has not ended for"));
    wait_seconds(0.9);
    EXPECT_EQ(calls, 1);
}

TEST(Watchdog, LeavesStepsAloneThatMoveOrWaitOrHandOut) {
    const Host host(1);
    RankBoard& board = *host.boards[0];
    std::atomic<int> calls{0};
    Watchdog watchdog(board, [&](const std::string&) { ++calls; });
    watchdog.bound_steps(0.5);
    for (int i = 0; i < 12; ++i) {
        board.enter(static_cast<std::uint64_t>(i), "score");
        wait_seconds(0.1);
    }
    board.begin_wait(RankBoard::kEverybody);
    wait_seconds(1.2);
    board.end_wait();
    board.enter(13, kOutputStep);
    wait_seconds(1.2);
    EXPECT_EQ(calls, 0);
}

} // namespace rank_board_test
