#include "spec/stop/stop_rule.h"

#include <gtest/gtest.h>

namespace entrodraft::spec {

TEST(Perplexity, IsTheGeometricMeanOfInverseProbabilities) {
    StopRuleOptions options("perplexity");
    options.set("perplexity-threshold", 3);
    StopRule rule(options, nullptr);
    rule.begin_round();
    EXPECT_EQ(rule.decide({0, 0.5F}), StopDecision::go_on);   // 2
    EXPECT_EQ(rule.decide({0, 0.25F}), StopDecision::go_on);  // sqrt(8) = 2.83
    EXPECT_NE(rule.decide({0, 0.125F}), StopDecision::go_on); // 64^(1/3) = 4
}

} // namespace entrodraft::spec
