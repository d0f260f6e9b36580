// Which experts rows go through, by hand.
#include "model/pass/routing.h"

#include <cmath>
#include <gtest/gtest.h>

namespace routing_test {

using namespace entrodraft;
using model::ChosenExpert;
using model::ExpertsConfig;

std::vector<ChosenExpert> chosen_of(const ExpertsConfig& experts, const std::vector<float>& logits,
                                    const std::vector<float>& correction = {}) {
    std::vector<ChosenExpert> chosen(static_cast<std::size_t>(experts.n_chosen));
    model::choose_experts(experts, logits, correction, chosen);
    return chosen;
}

std::vector<int> numbers_of(const std::vector<ChosenExpert>& chosen) {
    std::vector<int> numbers;
    for (const ChosenExpert& one : chosen)
        numbers.push_back(one.expert);
    return numbers;
}

TEST(Routing, ChoosesTheBestInOrderOfTheirNumbersWithTheSoftmaxAsWeights) {
    const ExpertsConfig experts = {.n_experts = 4, .n_chosen = 2};
    const std::vector<ChosenExpert> chosen = chosen_of(experts, {std::log(3.0f), 0, std::log(4.0f), 0});
    EXPECT_EQ(numbers_of(chosen), (std::vector<int>{0, 2}));
    EXPECT_NEAR(chosen[0].weight, 3.0 / 9, 1e-6);
    EXPECT_NEAR(chosen[1].weight, 4.0 / 9, 1e-6);
}

TEST(Routing, WeightsOfTheChosenAddUpToTheScaleWhereTheyAreNormalized) {
    const ExpertsConfig experts = {.n_experts = 4, .n_chosen = 2, .normalizes = true, .scale = 2.5f};
    const std::vector<ChosenExpert> chosen = chosen_of(experts, {std::log(3.0f), 0, std::log(4.0f), 0});
    EXPECT_NEAR(chosen[0].weight, 2.5 * 3 / 7, 1e-6);
    EXPECT_NEAR(chosen[1].weight, 2.5 * 4 / 7, 1e-6);
}

TEST(Routing, OfEqualScoresTheLowerNumberCountsAsBetter) {
    const ExpertsConfig experts = {.n_experts = 5, .n_chosen = 3};
    EXPECT_EQ(numbers_of(chosen_of(experts, {0, 1, 0, 1, 0})), (std::vector<int>{0, 1, 3}));
}

TEST(Routing, ACorrectionCountsInTheChoiceAndNotInTheWeights) {
    const ExpertsConfig experts = {.n_experts = 3, .n_chosen = 1, .score = model::RouterScore::sigmoid};
    const std::vector<ChosenExpert> chosen = chosen_of(experts, {0, 2, -1}, {0, 0, 0.9f});
    EXPECT_EQ(numbers_of(chosen), (std::vector<int>{2}));
    EXPECT_NEAR(chosen[0].weight, 1 / (1 + std::exp(1.0)), 1e-6);
}

TEST(Routing, ExpertsOfOtherGroupsThanTheBestAreNotChosen) {
    ExpertsConfig experts = {.n_experts = 6,
                             .n_chosen = 2,
                             .score = model::RouterScore::sigmoid,
                             .n_groups = 3,
                             .n_chosen_groups = 1,
                             .n_group_best = 1};
    const std::vector<float> logits = {3, -2, 2, 2.5f, 0, 0};
    EXPECT_EQ(numbers_of(chosen_of(experts, logits)), (std::vector<int>{0, 1})); // by the best of each
    experts.n_group_best = 2;
    EXPECT_EQ(numbers_of(chosen_of(experts, logits)), (std::vector<int>{2, 3})); // by the sum of two
    experts.n_chosen_groups = 2;
    EXPECT_EQ(numbers_of(chosen_of(experts, logits)), (std::vector<int>{0, 3})); // the third group is out
}

TEST(Routing, RowsOfAnExpertAreTogetherInTheirOrder) {
    const ExpertsConfig experts = {.n_experts = 4, .n_chosen = 2};
    const std::vector<ChosenExpert> chosen = {{0, 0.1f}, {2, 0.2f}, {1, 0.3f}, {2, 0.4f}, {0, 0.5f}, {1, 0.6f}};
    model::ExpertRows rows;
    rows.set(experts, chosen);
    EXPECT_EQ(rows.begin, (std::vector<int>{0, 2, 4, 6, 6}));
    EXPECT_EQ(rows.rows, (std::vector<int>{0, 2, 1, 2, 0, 1}));
    EXPECT_EQ(rows.weights, (std::vector<float>{0.1f, 0.5f, 0.3f, 0.6f, 0.2f, 0.4f}));
    EXPECT_EQ(rows.count(3), 0);
}

} // namespace routing_test
