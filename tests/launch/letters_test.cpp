// Letters come out as they went in, and signs of life are missed in time.
#include "dist/error.h"
#include "launch/serve/correspondence.h"
#include "launch/serve/letters.h"
#include "tests/launch/post_office.h"

#include <gtest/gtest.h>

namespace letters_test {

using namespace entrodraft;
using namespace entrodraft::launch;

// Different numbers everywhere.
spec::Stats stats_of(std::int64_t first, int n_levels) {
    spec::Stats stats;
    for (std::int64_t* member :
         {&stats.sequences, &stats.prompt_tokens, &stats.new_tokens, &stats.rounds, &stats.drafted, &stats.accepted,
          &stats.target_passes, &stats.draft_passes, &stats.drafting_rounds, &stats.overlaps})
        *member = first++;
    stats.passes_of_rows = {first, first + 1};
    stats.rounds_of_accepted = {first + 2};
    stats.by_position = {{first + 3, first + 4}, {first + 5, first + 6}};
    stats.by_entropy = {{first + 7, first + 8}};
    stats.overlap = static_cast<double>(first) + 0.5;
    stats.seconds.draft = 1.5;
    stats.seconds.first_token = 0.25;
    stats.seconds.total = 2.5;
    for (int level = 0; level < n_levels; ++level)
        stats.levels.push_back(stats_of(first + 100, 0));
    return stats;
}

TEST(Letters, ComeOutAsTheyWentIn) {
    const AskLetter ask = unpack_ask(pack(AskLetter{3, 2, true, false}));
    EXPECT_EQ(ask.asked, 3);
    EXPECT_EQ(ask.received, 2);
    EXPECT_TRUE(ask.urgent);
    EXPECT_FALSE(ask.idle);
    const WorkLetter work = unpack_work(pack(WorkLetter{7, 9, std::string("a\0b\n", 4)}));
    EXPECT_EQ(work.order, 7);
    EXPECT_EQ(work.number, 9);
    EXPECT_EQ(work.line, std::string("a\0b\n", 4));
    const Result result = unpack_result(pack(Result{1, 5, "{}"}));
    EXPECT_EQ(result.order, 1);
    EXPECT_EQ(result.new_tokens, 5);
    EXPECT_EQ(result.line, "{}");
}

TEST(Letters, HoldAllThatAReplicaCounted) {
    FarewellLetter farewell;
    farewell.tally.stats = stats_of(1, 2);
    farewell.tally.served = 50;
    farewell.tally.with_error = 51;
    farewell.tally.checked = 52;
    farewell.tally.check_differs = 53;
    farewell.tally.busy_seconds = 54.5;
    farewell.tally.latencies = {{55.5, 56.5}, {57.5}, {58.5, 59.5}};
    farewell.interrupted = true;
    const std::vector<std::byte> bytes = pack(farewell);
    const FarewellLetter read = unpack_farewell(bytes);
    EXPECT_EQ(pack(read), bytes);
    EXPECT_TRUE(read.interrupted);
    EXPECT_EQ(read.tally.served, 50);
    EXPECT_EQ(read.tally.check_differs, 53);
    EXPECT_EQ(read.tally.busy_seconds, 54.5);
    EXPECT_EQ(read.tally.latencies.ttft_ms, (std::vector<double>{55.5, 56.5}));
    EXPECT_EQ(read.tally.latencies.tpot_ms, std::vector<double>{57.5});
    EXPECT_EQ(read.tally.latencies.latency_ms, (std::vector<double>{58.5, 59.5}));
    EXPECT_EQ(read.tally.stats.seconds.first_token, 0.25);
    EXPECT_EQ(read.tally.stats.drafting_rounds, 9);
    EXPECT_EQ(read.tally.stats.by_position.at(1).accepted, farewell.tally.stats.by_position.at(1).accepted);
    EXPECT_EQ(read.tally.stats.seconds.total, 2.5);
    ASSERT_EQ(read.tally.stats.levels.size(), 2u);
    EXPECT_EQ(read.tally.stats.levels[1].accepted, farewell.tally.stats.levels[1].accepted);
}

TEST(Letters, ThatAreCutOrLengthenedAreRefused) {
    const std::vector<std::byte> whole = pack(FarewellLetter{{stats_of(1, 1), 1, 2, 3, 4, 5, {}}, false});
    for (std::size_t length = 0; length < whole.size(); ++length)
        EXPECT_THROW(unpack_farewell(std::span(whole).first(length)), std::runtime_error) << length;
    std::vector<std::byte> longer = whole;
    longer.push_back({});
    EXPECT_THROW(unpack_farewell(longer), std::runtime_error);
}

// ---- signs of life ----

struct TwoReplicas {
    test::PostOffice office{2};
    test::PostOffice::Box desk_box = office.box(0), other_box = office.box(1);
    dist::ManualClock clock;
    dist::RankLayout desk_layout = dist::make_layout(0, 4, 2, dist::DraftPlacement::colocated);
    dist::RankLayout other_layout = dist::make_layout(2, 4, 2, dist::DraftPlacement::colocated);
    Correspondence desk{desk_box, desk_layout, clock, 8};
    Correspondence other{other_box, other_layout, clock, 8};

    // Both at work; the other replica gives signs of life until then.
    double seconds_until_missed(double lives_until) {
        for (double now = 0; now < 100; now += 0.25, clock.advance(0.25)) {
            try {
                EXPECT_FALSE(desk.poll());
                desk.keep_alive();
            } catch (const dist::Timeout&) {
                return now;
            }
            if (now < lives_until) {
                EXPECT_FALSE(other.poll());
                other.keep_alive();
            }
        }
        return 100;
    }
};

TEST(Correspondence, AReplicaThatLivesIsNotMissed) {
    EXPECT_EQ(TwoReplicas().seconds_until_missed(1000), 100);
}

TEST(Correspondence, ASilentReplicaIsMissedALittleAfterItsOwnStepWouldHaveEnded) {
    const double missed = TwoReplicas().seconds_until_missed(20);
    EXPECT_GE(missed, 20 + 8);
    EXPECT_LE(missed, 20 + 12);
}

TEST(Correspondence, SaysWhichRankIsSilent) {
    TwoReplicas both;
    std::string message;
    try {
        for (int i = 0; i < 100; ++i) {
            both.clock.advance(1);
            both.desk.keep_alive();
        }
    } catch (const dist::Timeout& error) {
        message = error.what();
    }
    EXPECT_NE(message.find("replica 1 (rank 2 coordinates it)"), std::string::npos) << message;
    EXPECT_NE(message.find("8 s"), std::string::npos) << message;
}

TEST(Correspondence, APauseOfOnesOwnIsNotHeldAgainstTheOther) {
    TwoReplicas both;
    both.clock.advance(1000);
    EXPECT_NO_THROW(both.desk.keep_alive());
    both.clock.advance(3);
    EXPECT_NO_THROW(both.desk.keep_alive());
}

TEST(Correspondence, WhoHasSaidFarewellIsNotAwaitedButStillHearsOfTheOther) {
    TwoReplicas both;
    both.desk.dismiss(1);
    for (int i = 0; i < 100; ++i) {
        both.clock.advance(1);
        EXPECT_NO_THROW(both.desk.keep_alive());
        EXPECT_FALSE(both.other.poll());
        EXPECT_NO_THROW(both.other.keep_alive());
    }
}

} // namespace letters_test
