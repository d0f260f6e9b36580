// The speed-up that a draft gives at given costs.
#include "spec/distill/worth.h"

#include <gtest/gtest.h>

namespace draft_worth_test {

using namespace entrodraft;
using spec::Costs;

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
    costs.t_round = 1; // part of a round's cost, whatever the number of tokens
    EXPECT_DOUBLE_EQ(expected_speedup(1, costs).speedup, 12 / 3.25);
}

} // namespace draft_worth_test
