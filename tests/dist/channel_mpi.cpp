// Messages between replicas over MPI, at whatever number of ranks mpirun gave; with one rank there is no channel.
#include "tests/dist/session_of_tests.h"

#include "dist/comm/channel.h"
#include "dist/rank/error.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

namespace channel_mpi {

using namespace entrodraft::dist;

const SteadyClock the_clock;

void meet() {
    session_of_tests().world().barrier(Deadline::after_seconds(60));
}

RankLayout layout_of(int replicas) {
    return make_layout(session_of_tests().world_rank(), session_of_tests().world_size(), replicas,
                       DraftPlacement::colocated);
}

// A replica a rank.
std::unique_ptr<Channel> channel_of_all() {
    return session_of_tests().channel(layout_of(session_of_tests().world_size()), the_clock, 60);
}

// Of those with whom this rank talks.
std::vector<int> peers() {
    if (session_of_tests().world_rank() > 0) return {0};
    std::vector<int> others;
    for (int replica = 1; replica < session_of_tests().world_size(); ++replica)
        others.push_back(replica);
    return others;
}

// Short ones, and some that MPI does not take at once.
std::vector<std::byte> text_of(int from, int to, int number) {
    constexpr std::size_t kLengths[] = {1, 100, 5000, 70'000, 3'000'000};
    std::vector<std::byte> bytes(kLengths[static_cast<std::size_t>(from + number * 3) % std::size(kLengths)]);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(from * 100 + to * 10 + number));
    return bytes;
}

TEST(ReplicaChannel, KeepsTheOrderOfEachSender) {
    const auto channel = channel_of_all();
    ASSERT_EQ(channel != nullptr, session_of_tests().world_size() > 1);
    if (!channel) return;
    const int rank = session_of_tests().world_rank();
    constexpr int kMessages = 12;
    for (int number = 0; number < kMessages; ++number)
        for (const int to : peers())
            channel->send(to, text_of(rank, to, number));
    std::vector<int> next(static_cast<std::size_t>(session_of_tests().world_size())); // by sender
    for (std::size_t i = 0; i < kMessages * peers().size(); ++i) {
        const auto message = channel->receive(60);
        if (!message) {
            ADD_FAILURE() << "a message did not come";
            break;
        }
        const int number = next[static_cast<std::size_t>(message->from)]++;
        EXPECT_TRUE(message->bytes == text_of(message->from, rank, number))
            << "message " << number << " from " << message->from;
    }
    channel->flush(Deadline::after_seconds(60));
    meet();
}

TEST(ReplicaChannel, WaitsNoLongerThanItIsTold) {
    if (const auto channel = channel_of_all()) {
        const auto began = std::chrono::steady_clock::now();
        EXPECT_FALSE(channel->receive(0.05));
        EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(50));
    }
    meet();
}

TEST(ReplicaChannel, IsOfCoordinatorsOnly) {
    if (session_of_tests().world_size() % 2 == 0) {
        const RankLayout layout = layout_of(session_of_tests().world_size() / 2);
        const auto channel = session_of_tests().channel(layout, the_clock, 60);
        EXPECT_EQ(channel != nullptr, layout.replicas > 1 && layout.is_coordinator());
    }
    meet();
}

TEST(ReplicaChannel, ThrowsWhereTheOtherIsSilent) {
    const auto channel = session_of_tests().channel(layout_of(session_of_tests().world_size()), the_clock, 0.2);
    if (channel && session_of_tests().world_rank() == 0) {
        EXPECT_THROW(channel->receive(60), Timeout);
    }
    meet();
}

// A rank that leaves takes no message with it that was not read: ending a program does not hang on it.
TEST(ReplicaChannel, MayBeLeftWithMessagesInIt) {
    if (const auto channel = channel_of_all())
        for (const int to : peers())
            channel->send(to, std::vector<std::byte>(10));
    meet();
}

} // namespace channel_mpi
