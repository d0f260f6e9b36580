// What a draft is worth: speed-ups at given costs, and acceptance that is extrapolated.
#include "spec/distill/worth.h"

#include <gtest/gtest.h>

#include <cmath>

namespace draft_worth_test {

using namespace entrodraft;
using spec::Costs;
using spec::Evaluation;

std::vector<Evaluation> evaluations_of(const std::vector<std::pair<int, double>>& overlaps) {
    std::vector<Evaluation> made;
    for (const auto& [step, overlap] : overlaps) {
        made.emplace_back().step = step;
        made.back().overlap = overlap;
    }
    return made;
}

double predicted(const std::vector<std::pair<int, double>>& overlaps, int steps) {
    return spec::predicted_share(evaluations_of(overlaps), &Evaluation::overlap, steps);
}

TEST(DraftWorth, DraftsHaveTheBestLength) {
    Costs costs;
    costs.t_draft = 0.25;
    costs.t_target = {1, 1, 1, 1, 1, 1};
    const spec::ExpectedSpeedup sure = expected_speedup(1, costs);
    EXPECT_EQ(sure.drafted, 5);
    EXPECT_DOUBLE_EQ(sure.speedup, 6 / 2.25);
    const spec::ExpectedSpeedup half = expected_speedup(0.5, costs); // 1.5 / 1.25, 1.75 / 1.5, ...
    EXPECT_EQ(half.drafted, 1);
    EXPECT_DOUBLE_EQ(half.speedup, 1.2);
    const spec::ExpectedSpeedup none = expected_speedup(0.2, costs);
    EXPECT_EQ(none.drafted, 0);
    EXPECT_DOUBLE_EQ(none.speedup, 1);
    costs.t_round = 1; // a share of a round that grows with no token
    EXPECT_DOUBLE_EQ(expected_speedup(1, costs).speedup, 12 / 3.25);
}

TEST(DraftWorth, WhatIsMissingFallsAsAPowerOfTheSteps) {
    const auto missing = [](int step) { return 0.5 * std::pow(step / 50.0, -0.3); };
    std::vector<std::pair<int, double>> curve = {{0, 0.01}, {10, 0.02}};
    for (const int step : {50, 100, 150, 200})
        curve.emplace_back(step, 1 - missing(step));
    EXPECT_NEAR(predicted(curve, 1000), 1 - missing(1000), 1e-12);
    EXPECT_NEAR(predicted(curve, 200), 1 - missing(200), 1e-12);
    curve[1].second = 0.4; // the beginning counts for nothing
    EXPECT_NEAR(predicted(curve, 1000), 1 - missing(1000), 1e-12);
}

TEST(DraftWorth, AcceptanceThatFallsIsNotExtrapolated) {
    EXPECT_DOUBLE_EQ(predicted({{0, 0.1}, {50, 0.7}, {100, 0.6}}, 1000), 0.7);
    EXPECT_DOUBLE_EQ(predicted({{0, 0.8}, {50, 0.6}}, 1000), 0.8); // one measurement tells of no curve
    EXPECT_DOUBLE_EQ(predicted({{0, 0.8}}, 1000), 0.8);
    EXPECT_LE(predicted({{0, 0.1}, {50, 0.5}, {100, 1}}, 1000), 1);
}

TEST(DraftWorth, AllDraftsHaveTheTargetsMedianCosts) {
    std::vector<Costs> costs(3);
    for (std::size_t i = 0; i < costs.size(); ++i) {
        const auto number = static_cast<double>(i);
        costs[i].t_draft = number;
        costs[i].t_target = {1 + number, 9 - number};
        costs[i].t_round = number * number;
    }
    costs[0].t_target[0] = 100; // a slow while
    spec::share_target_costs(costs);
    for (std::size_t i = 0; i < costs.size(); ++i) {
        EXPECT_EQ(costs[i].t_draft, static_cast<double>(i));
        EXPECT_EQ(costs[i].t_target, (std::vector<double>{3, 8}));
        EXPECT_EQ(costs[i].t_round, 1);
    }
}

} // namespace draft_worth_test
