// What is shown while a command runs.
#include "launch/io/progress.h"

#include <gtest/gtest.h>

namespace report_test {

using namespace entrodraft::launch;

TEST(Report, BarIsHeldAtItsEnds) {
    EXPECT_EQ(format_bar(0, 4), "[----]");
    EXPECT_EQ(format_bar(0.5, 4), "[##--]");
    EXPECT_EQ(format_bar(7, 4), "[####]");
    EXPECT_EQ(format_bar(-1, 4), "[----]");
}

TEST(Report, DurationsReadLikeClocks) {
    EXPECT_EQ(format_duration(42), "0:42");
    EXPECT_EQ(format_duration(3787), "1:03:07");
    EXPECT_EQ(format_duration(-5), "0:00");
}

TEST(Report, SlowRatesHaveADecimal) {
    EXPECT_EQ(format_rate(0.42), "0.4");
    EXPECT_EQ(format_rate(9.64), "9.6");
    EXPECT_EQ(format_rate(9.97), "10");
    EXPECT_EQ(format_rate(3035.2), "3035");
}

TEST(Report, WhatIsLeftGoesByWhatWasDoneMeanwhile) {
    EXPECT_EQ(seconds_to_go(0, 0.25, 10).value_or(-1), 30);
    EXPECT_EQ(seconds_to_go(0.5, 0.75, 10).value_or(-1), 10) << "half was done before";
    EXPECT_EQ(seconds_to_go(0, 1, 10).value_or(-1), 0);
    EXPECT_FALSE(seconds_to_go(0.5, 0.505, 10));
    EXPECT_FALSE(seconds_to_go(0, -1, 10)) << "nobody knows how much there is";
}

} // namespace report_test
