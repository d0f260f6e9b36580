// What passes cost is learnt while the machine is slower and faster by turns.
#include "spec/plan/pass_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <random>

namespace entrodraft::spec {
namespace {

// The measured time of a pass.
double target_of(int rows) {
    return 1.0 + 0.1 * (rows - 1);
}

// The cost of the pass relative to one of a single row, as PassTimes takes it.
double cost_of(double target) {
    return 1 + (1 + PassTimes::kBehind) * (target - 1);
}

// The draft's first pass of a round takes 0.2, each other one 0.1.
double draft_of(int passes) {
    return 0.1 + 0.1 * passes;
}

constexpr int kUsualRows = 3; // passes have 1 to 5 rows in turn

// Draft passes are compared with the usual target pass, whose cost is the measured one.
void expect_costs(const PassTimes& times, double relative) {
    const double plain = times.target_seconds(1), usual = times.target_seconds(kUsualRows) / target_of(kUsualRows);
    for (int rows = 2; rows <= 5; ++rows)
        EXPECT_NEAR(times.target_seconds(rows) / plain, cost_of(target_of(rows)), relative * target_of(rows)) << rows;
    for (const int passes : {1, 4})
        EXPECT_NEAR(times.draft_seconds(passes, 0) / usual, draft_of(passes), relative * draft_of(passes)) << passes;
}

// A round that drafts `drafted` tokens while everything takes `slowness` times as long.
void learn_round(PassTimes& times, int drafted, double slowness) {
    times.learn_target(drafted + 1, slowness * target_of(drafted + 1), 1);
    if (drafted > 0) times.learn_draft(drafted, 0, slowness * draft_of(drafted));
}

TEST(PassTimes, LearnsCostsThroughOutliers) {
    PassTimes times(0.5);
    for (int i = 0; i < 600; ++i)
        learn_round(times, i % 5, i % 37 == 5 ? 10 : 1); // sometimes another process takes the core
    expect_costs(times, 0.03);
    EXPECT_NEAR(times.slowness() * times.target_seconds(kUsualRows), target_of(kUsualRows), 0.05);
    EXPECT_GT(times.target_seconds(8), times.target_seconds(5));
}

// Each row count is seen for a while, as with a stop rule that follows what it has learnt. Then the machine changes its
// speed.
TEST(PassTimes, TellsWhatRowsCostFromTheSpeedOfTheMachine) {
    PassTimes times(0.5);
    for (int i = 0; i < 1200; ++i)
        learn_round(times, i / 7 % 5, 1 + 0.3 * std::sin(i / 15.0));
    expect_costs(times, 0.03);
}

// A run of passes of five rows takes 1.348 times one of two rows, though side by side they take 1.27 times.
TEST(PassTimes, ARowAlsoCostsWhatThePassesBehindItAreSlower) {
    PassTimes times(0.5);
    std::mt19937 random(1);
    const auto slower_behind = [](int rows) { return 1 + 0.02 * (rows - 1); };
    for (int i = 0, before = 2; i < 1200; ++i) {
        const int rows = 2 + static_cast<int>(random() % 4);
        times.learn_target(rows, slower_behind(before) * target_of(rows), 1);
        before = rows;
    }
    const auto in_a_run = [&](int rows) { return slower_behind(rows) * target_of(rows); };
    EXPECT_NEAR(times.target_seconds(5) / times.target_seconds(2), in_a_run(5) / in_a_run(2), 0.04);
}

TEST(PassTimes, FollowsAMachineThatBecomesAndStaysSlower) {
    PassTimes times(0.5);
    for (int i = 0; i < 600; ++i)
        learn_round(times, i % 5, i < 300 ? 1 : 3);
    EXPECT_NEAR(times.slowness() * times.target_seconds(kUsualRows), 3 * target_of(kUsualRows), 0.1);
    expect_costs(times, 0.05);
}

TEST(PassTimes, LearnsNothingFromAColdStart) {
    for (const bool draft_too : {false, true}) {
        PassTimes times(0.5);
        times.learn_target(4, 100 * target_of(4), 1);
        times.learn_draft(3, 0, (draft_too ? 100 : 1) * draft_of(3));
        for (int i = 0; i < 200; ++i)
            learn_round(times, i % 5, 1);
        expect_costs(times, 0.03);
        EXPECT_NEAR(times.slowness() * times.target_seconds(kUsualRows), target_of(kUsualRows), 0.05);
    }
}

// Otherwise a row count first measured at a bad moment would never be tried again.
TEST(PassTimes, TakesABadMomentForTheSpeedOfTheMachine) {
    PassTimes times(0.1);
    for (int i = 0; i < 8; ++i)
        times.learn_target(1, 9.0, 1);
    for (int i = 0; i < 1000; ++i)
        i % 2 == 0 ? times.learn_target(4, 1.3, 1) : times.learn_target(6, 1.5, 1);
    const double of_four = times.target_seconds(4);
    EXPECT_NEAR(times.target_seconds(6) / of_four, cost_of(1.5) / cost_of(1.3), 0.02);
    EXPECT_LT(times.target_seconds(1) / of_four, 1.2 / 1.3);
}

TEST(PassTimes, TellsADraftPassFromItsFurtherRows) {
    PassTimes times(0.5);
    for (int i = 0; i < 300; ++i) {
        const int passes = 1 + i % 4, rows = passes > 1 ? i * 7 % 13 : 0;
        const double noise = 1 + 0.2 * (i * 11 % 7 - 3) / 3.0;
        times.learn_target(4, 1, 1);
        times.learn_draft(passes, rows, noise * (0.08 + 0.05 * (passes - 1) + 0.01 * rows));
    }
    const double unit = times.target_seconds(4);
    EXPECT_NEAR(times.draft_seconds(1, 0) / unit, 0.08, 0.01);
    EXPECT_NEAR((times.draft_seconds(3, 0) - times.draft_seconds(2, 0)) / unit, 0.05, 0.01);
    EXPECT_NEAR((times.draft_seconds(3, 5) - times.draft_seconds(3, 4)) / unit, 0.01, 0.002);
}

// A pass over sixteen texts costs much even without drafted rows, as each text's keys are read.
TEST(PassTimes, NoRowOfAWidePassSeemsFree) {
    PassTimes times(0.1);
    const auto target = [](int rows) { return rows <= 16 ? 2.0 : 1.6 + 0.07 * (rows - 16); };
    for (int i = 0; i < 400; ++i) {
        const int rows = i % 2 == 0 ? 16 : 17 + i % 14;
        for (int text = 0; text < 16; ++text)
            times.learn_target(rows, target(rows), 1.0 / 16);
    }
    EXPECT_GT(times.target_seconds(17) - times.target_seconds(16), 0.01 * times.target_seconds(16));
    EXPECT_NEAR(times.target_seconds(30) / times.target_seconds(16), target(30) / 2, 0.05 * target(30) / 2);
    for (int rows = 2; rows <= 1000; ++rows)
        EXPECT_GE(times.target_seconds(rows), times.target_seconds(rows - 1)) << rows;
}

TEST(PassTimes, APassOfABatchCountsOnceThoughEachOfItsTextsTellsOfIt) {
    PassTimes once(0.1), by_all(0.1);
    const auto learn = [&](int rows, double seconds) {
        once.learn_target(rows, seconds, 1);
        for (int text = 0; text < 16; ++text)
            by_all.learn_target(rows, seconds, 1.0 / 16);
    };
    for (int i = 0; i < 100; ++i)
        learn(i % 2 == 0 ? 16 : 24, (i % 2 == 0 ? 1 : 1.4) * (1 + 0.05 * (i * 5 % 7 - 3)));
    learn(16, 1.3);
    EXPECT_NEAR(by_all.slowness() * by_all.target_seconds(16), once.slowness() * once.target_seconds(16), 0.06);
    EXPECT_NEAR(by_all.target_seconds(24) / by_all.target_seconds(16),
                once.target_seconds(24) / once.target_seconds(16), 0.02);
}

} // namespace
} // namespace entrodraft::spec
