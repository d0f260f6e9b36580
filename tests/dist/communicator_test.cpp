// The group of one, clocks and deadlines, and NodeComm among threads of one process over ordinary memory, where a
// sanitizer can see both sides of every slot.
#include "tests/dist/manual_clock.h"

#include "dist/comm/agreement.h"
#include "dist/comm/backoff.h"
#include "dist/comm/node_comm.h"
#include "dist/rank/error.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <limits>
#include <numeric>
#include <sched.h>
#include <thread>

namespace communicator_test {

using namespace entrodraft::dist;

// Runs `work` once a rank, each on a thread with its own NodeComm.
void on_ranks(int ranks, const std::function<void(Communicator&)>& work, bool crowded = true) {
    std::vector<std::byte*> segments;
    for (int rank = 0; rank < ranks; ++rank) {
        void* segment = std::aligned_alloc(NodeComm::kAlignment, NodeComm::kSegmentBytes);
        std::memset(segment, 0, NodeComm::kSegmentBytes);
        segments.push_back(static_cast<std::byte*>(segment));
    }
    std::vector<int> world_ranks(static_cast<std::size_t>(ranks));
    std::iota(world_ranks.begin(), world_ranks.end(), 10); // group rank 0 is world rank 10
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            NodeComm comm({.rank = rank, .world_ranks = world_ranks, .segments = segments, .crowded = crowded});
            work(comm);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    for (std::byte* segment : segments)
        std::free(segment);
}

TEST(Deadline, PassesWhenItsTimeIsOver) {
    EXPECT_TRUE(Deadline::after_seconds(0).passed());
    EXPECT_TRUE(Deadline::after_seconds(-1).passed());
    EXPECT_FALSE(Deadline::after_seconds(60).passed());
    EXPECT_FALSE(Deadline::after_seconds(1e300).passed());
    EXPECT_FALSE(Deadline::after_seconds(std::numeric_limits<double>::infinity()).passed());
}

TEST(ManualClock, MovesOnlyWhenTold) {
    ManualClock clock;
    EXPECT_EQ(clock.now_seconds(), 0);
    clock.advance(1.5);
    EXPECT_EQ(clock.now_seconds(), 1.5);
}

TEST(SelfComm, KeepsSumsAndCopiesGathers) {
    SelfComm comm;
    const Deadline soon = Deadline::after_seconds(1);
    float values[2] = {1.5F, -2};
    comm.all_reduce_sum(values, 2, soon);
    comm.broadcast(values, sizeof values, 0, soon);
    float copy[2] = {};
    comm.gather(values, copy, sizeof values, 0, soon);
    comm.barrier(soon);
    EXPECT_EQ(copy[0], 1.5F);
    EXPECT_EQ(copy[1], -2.0F);
    EXPECT_EQ(comm.name(), "self");
    EXPECT_THROW(comm.start_all_reduce_sum(values, 2, ElementType::bfloat16), Error);
}

TEST(Agreement, ReportsALoneRanksFailureWithoutARank) {
    SelfComm comm;
    const Deadline soon = Deadline::after_seconds(1);
    EXPECT_TRUE(agree(comm, {}, soon).ok());
    const Status status = agree(comm, {"no such file", 2}, soon);
    EXPECT_EQ(status.message, "no such file");
    EXPECT_EQ(status.exit_code, 2);
    EXPECT_TRUE(same_on_all_ranks(comm, 7, "the configuration", soon).ok());
}

TEST(Agreement, CutsLongMessagesBetweenCharacters) {
    SelfComm comm;
    std::string text = "x";
    for (int i = 0; i < 600; ++i)
        text += "\u00e9"; // two bytes each: byte 1,000 falls into one
    const Status status = agree(comm, {text, 1}, Deadline::after_seconds(1));
    EXPECT_EQ(status.message, text.substr(0, 999));
}

TEST(NodeComm, AddsInRankOrderAcrossManyChunks) {
    constexpr int kRanks = 3;
    const std::size_t count = NodeComm::kSlotBytes / sizeof(float) * 9 + 5;
    on_ranks(kRanks, [&](Communicator& comm) {
        for (int repeat = 0; repeat < 3; ++repeat) {
            std::vector<float> data(count);
            const auto value = [](int rank, std::size_t i) {
                return (rank == 1 ? -1e8F : 1e8F) + static_cast<float>(i % 97) * 3.25F * static_cast<float>(rank);
            };
            for (std::size_t i = 0; i < count; ++i)
                data[i] = value(comm.rank(), i);
            comm.all_reduce_sum(data.data(), count, Deadline::after_seconds(60));
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < count; ++i) {
                if (data[i] != (value(0, i) + value(1, i)) + value(2, i)) ++wrong;
            }
            EXPECT_EQ(wrong, 0U);
        }
    });
}

TEST(NodeComm, NeverOverwritesASlotThatASlowReaderStillNeeds) {
    // Rank 0 runs ahead with broadcasts that wait for nobody; the reader is slow at random places.
    on_ranks(2, [](Communicator& comm) {
        std::size_t wrong = 0;
        for (int round = 0; round < 2000; ++round) {
            std::vector<int> payload(64, comm.rank() == 0 ? round : -1);
            if (comm.rank() == 1 && round % 37 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
            comm.broadcast(payload.data(), payload.size() * sizeof(int), 0, Deadline::after_seconds(60));
            for (const int value : payload)
                wrong += value == round ? 0 : 1;
        }
        EXPECT_EQ(wrong, 0U);
    });
}

TEST(NodeComm, NamesTheWorldRankThatIsMissing) {
    on_ranks(3, [](Communicator& comm) {
        if (comm.rank() == 1) return;
        float value = 1;
        try {
            comm.all_reduce_sum(&value, 1, Deadline::after_seconds(0.05));
            ADD_FAILURE() << "an all-reduce ended without one of its ranks";
        } catch (const Timeout& timeout) {
            const std::string expected = "rank " + std::to_string(10 + comm.rank()) + " waited";
            EXPECT_EQ(std::string(timeout.what()).find(expected), 0U) << timeout.what();
            EXPECT_NE(std::string(timeout.what()).find("for rank 11 in all-reduce"), std::string::npos);
        }
        EXPECT_THROW(comm.start_broadcast(&value, sizeof value, 0), Error) << "it is unusable after a timeout";
    });
}

TEST(NodeComm, WakesARankThatSleptLong) {
    // Rank 1 comes so late that rank 0 sleeps; a wake-up that got lost would cost Backoff::kLongestSleep.
    constexpr int kRounds = 100;
    double slept = 0;
    on_ranks(2, [&](Communicator& comm) {
        for (int round = 0; round < kRounds; ++round) {
            float value = 1;
            if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(3));
            comm.all_reduce_sum(&value, 1, Deadline::after_seconds(60));
            EXPECT_EQ(value, 2);
        }
        if (comm.rank() == 0) slept = comm.traffic().waited_seconds;
    });
    EXPECT_LT(slept, kRounds * std::chrono::duration<double>(Backoff::kLongestSleep).count() / 5);
}

TEST(NodeComm, WakesSleepersAtEveryMomentOfFallingAsleep) {
    // The one who is awaited comes at moments that move over the end of the other's patience, back and forth.
    on_ranks(3, [](Communicator& comm) {
        for (int round = 0; round < 300; ++round) {
            float value = 1;
            if (comm.rank() == round % 3)
                std::this_thread::sleep_for(std::chrono::microseconds(900 + 7 * (round % 50)));
            comm.all_reduce_sum(&value, 1, Deadline::after_seconds(60));
            EXPECT_EQ(value, 3);
        }
    });
}

TEST(NodeComm, SpinsForNoRankOnItsOwnCore) {
    cpu_set_t before, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0); // threads inherit it
    const auto cpu_seconds = [](bool crowded) {
        const std::clock_t begin = std::clock();
        on_ranks(
            2,
            [](Communicator& comm) {
                for (int round = 0; round < 800; ++round)
                    comm.barrier(Deadline::after_seconds(60));
            },
            crowded);
        return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    };
    const double knowing = cpu_seconds(true), unknowing = cpu_seconds(false);
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    EXPECT_LT(unknowing, 4 * knowing + 0.005) << "ranks that were not told that they share a core";
}

TEST(NodeComm, RefusesASecondCollectiveInFlightAndARootThatIsNoRank) {
    on_ranks(1, [](Communicator& comm) {
        float value = 1;
        EXPECT_THROW(comm.wait(Deadline::after_seconds(1)), Error);
        EXPECT_THROW(comm.start_broadcast(&value, sizeof value, 1), Error);
        EXPECT_THROW(comm.start_all_reduce_sum(&value, 1, ElementType::float16), Error);
        comm.start_broadcast(&value, sizeof value, 0);
        EXPECT_THROW(comm.start_broadcast(&value, sizeof value, 0), Error);
        comm.wait(Deadline::after_seconds(1));
    });
}

} // namespace communicator_test
