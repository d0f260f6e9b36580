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

} // namespace report_test
