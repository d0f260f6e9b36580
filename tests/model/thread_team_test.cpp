// The team under load: every thread takes part in every run, and nobody passes a barrier too early.
#include "model/host/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <sys/resource.h>
#include <thread>
#include <vector>

namespace thread_team_test {

using entrodraft::model::ThreadTeam;

TEST(ThreadTeam, NeedsAtLeastOneThread) {
    EXPECT_THROW(ThreadTeam(0), std::invalid_argument);
    EXPECT_THROW(ThreadTeam(-3), std::invalid_argument);
}

TEST(ThreadTeam, RunsEveryThreadOnceARunAndTheCallerIsThreadZero) {
    for (int size = 1; size <= 8; ++size) {
        ThreadTeam team(size);
        ASSERT_EQ(team.size(), size);
        std::vector<int> calls(static_cast<std::size_t>(size), 0); // not atomic: run() itself must order the accesses
        const std::thread::id caller = std::this_thread::get_id();
        const int runs = size <= 2 ? 4000 : 1200 / size; // more threads than cores cost milliseconds a run
        bool caller_is_zero = true;
        for (int run = 0; run < runs; ++run) {
            team.run([&](int thread) {
                ++calls[static_cast<std::size_t>(thread)];
                if ((std::this_thread::get_id() == caller) != (thread == 0)) caller_is_zero = false;
            });
            ASSERT_EQ(std::accumulate(calls.begin(), calls.end(), 0), (run + 1) * size) << "after run " << run;
        }
        EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(size), runs));
        EXPECT_TRUE(caller_is_zero);
    }
}

TEST(ThreadTeam, NobodyPassesABarrierBeforeAllHaveReachedIt) {
    for (int size = 1; size <= 8; ++size) {
        ThreadTeam team(size);
        const auto n = static_cast<std::size_t>(size);
        std::vector<std::int64_t> part(n, 0), sums(n, 0);
        const int runs = size <= 2 ? 100 : 80 / size, steps = 16;
        for (int run = 0; run < runs; ++run) {
            team.run([&](int thread) {
                const auto me = static_cast<std::size_t>(thread);
                for (int step = 0; step < steps; ++step) {
                    part[me] = std::int64_t{run} * 1000 + step * 10 + thread;
                    team.barrier(thread);
                    sums[me] += std::accumulate(part.begin(), part.end(), std::int64_t{0}); // what all have written
                    team.barrier(thread);
                }
            });
        }
        std::int64_t want = 0;
        for (int run = 0; run < runs; ++run)
            for (int step = 0; step < steps; ++step)
                for (int thread = 0; thread < size; ++thread)
                    want += std::int64_t{run} * 1000 + step * 10 + thread;
        EXPECT_EQ(sums, std::vector<std::int64_t>(n, want)) << size << " threads";
    }
}

TEST(ThreadTeam, ATeamThatHasGoneToSleepWakesUp) {
    for (const int size : {2, 5}) {
        ThreadTeam team(size);
        std::atomic<int> calls = 0;
        for (int run = 0; run < 6; ++run) {
            std::this_thread::sleep_for(std::chrono::milliseconds(60)); // longer than it spins and yields
            team.run([&](int) { ++calls; });
            ASSERT_EQ(calls, (run + 1) * size);
        }
    }
}

TEST(ThreadTeam, ARunThatIsSlowOnOneThreadIsWaitedFor) {
    ThreadTeam team(3);
    for (int slow = 0; slow < 3; ++slow) {
        std::vector<int> done(3, 0);
        team.run([&](int thread) {
            if (thread == slow) std::this_thread::sleep_for(std::chrono::milliseconds(30));
            team.barrier(thread);
            done[static_cast<std::size_t>(thread)] = 1;
        });
        EXPECT_EQ(done, std::vector<int>(3, 1));
    }
}

// How often the calling thread has given its core away to wait.
long times_asleep() {
    rusage usage = {};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

// Else the system cannot give the core to the thread that is waited for, where other work has taken that one's.
TEST(ThreadTeam, AThreadThatWaitsLongGivesItsCoreAway) {
    ThreadTeam team(3);
    for (int late = 0; late < 3; ++late) {
        std::vector<long> asleep(3, 0);
        team.run([&](int thread) {
            const long before = times_asleep();
            if (thread == late) std::this_thread::sleep_for(std::chrono::milliseconds(100));
            team.barrier(thread);
            asleep[static_cast<std::size_t>(thread)] = times_asleep() - before;
        });
        for (const long times : asleep)
            EXPECT_GT(times, 0) << "at a barrier for thread " << late;
    }
    const long before = times_asleep();
    team.run([](int thread) {
        if (thread == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    });
    EXPECT_GT(times_asleep(), before) << "the caller, for the end of a run";
}

TEST(ThreadTeam, CanBeMadeAndDroppedWithoutEverRunning) {
    for (int i = 0; i < 200; ++i)
        ThreadTeam team(1 + i % 5);
}

} // namespace thread_team_test
