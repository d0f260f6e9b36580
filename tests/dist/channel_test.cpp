// Heartbeats between replicas: who lives is not missed, and who does not is, in time and by name.
#include "dist/rank/error.h"
#include "tests/dist/joined_channels.h"
#include "tests/dist/manual_clock.h"

#include <gtest/gtest.h>

#include <string>

namespace channel_test {

using namespace entrodraft::dist;

constexpr double kTimeoutSeconds = 8;

struct TwoReplicas {
    test::JoinedChannels joined{2};
    ManualClock clock;
    test::JoinedChannels::End first{joined, make_layout(0, 4, 2, DraftPlacement::colocated), clock, kTimeoutSeconds};
    test::JoinedChannels::End second{joined, make_layout(2, 4, 2, DraftPlacement::colocated), clock, kTimeoutSeconds};

    // Both at work; the second one listens, and so sends heartbeats, until then.
    double seconds_until_missed(double lives_until) {
        for (double now = 0; now < 100; now += 0.25, clock.advance(0.25)) {
            try {
                EXPECT_FALSE(first.receive(0));
            } catch (const Timeout&) {
                return now;
            }
            if (now < lives_until) {
                EXPECT_FALSE(second.receive(0));
            }
        }
        return 100;
    }
};

TEST(Channel, AReplicaThatLivesIsNotMissed) {
    EXPECT_EQ(TwoReplicas().seconds_until_missed(1000), 100);
}

TEST(Channel, ASilentReplicaIsMissedALittleAfterItsOwnStepWouldHaveEnded) {
    const double missed = TwoReplicas().seconds_until_missed(20);
    EXPECT_GE(missed, 20 + 8);
    EXPECT_LE(missed, 20 + 12);
}

TEST(Channel, NamesTheReplicaThatIsSilent) {
    TwoReplicas both;
    std::string message;
    try {
        for (int i = 0; i < 100; ++i) {
            both.clock.advance(1);
            both.first.receive(0);
        }
    } catch (const Timeout& error) {
        message = error.what();
    }
    EXPECT_NE(message.find("replica 1 (rank 2 coordinates it)"), std::string::npos) << message;
    EXPECT_NE(message.find("8 s"), std::string::npos) << message;
}

TEST(Channel, APauseOfOnesOwnIsNotHeldAgainstTheOther) {
    TwoReplicas both;
    both.clock.advance(1000);
    EXPECT_NO_THROW(both.first.receive(0));
    both.clock.advance(3);
    EXPECT_NO_THROW(both.first.receive(0));
}

TEST(Channel, MessagesArriveInOrderAndHeartbeatsAreNone) {
    TwoReplicas both;
    both.clock.advance(2);
    EXPECT_FALSE(both.second.receive(0)); // sends a heartbeat
    for (const std::byte number : {std::byte{1}, std::byte{2}})
        both.second.send(0, {&number, 1});
    for (const std::byte number : {std::byte{1}, std::byte{2}}) {
        const auto message = both.first.receive(0);
        ASSERT_TRUE(message);
        EXPECT_EQ(message->from, 1);
        EXPECT_EQ(message->bytes, std::vector{number});
    }
    EXPECT_FALSE(both.first.receive(0));
}

} // namespace channel_test
