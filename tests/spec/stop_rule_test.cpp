// The stop rules against values worked out by hand.
#include "entrodraft/spec/stop_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace entrodraft::spec {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

StopRuleOptions options_of(StopRuleKind kind) {
    StopRuleOptions options;
    options.kind = kind;
    return options;
}

// The t at which a fresh round over these entropies stops; 0 where it does not.
int stop_of(StopRule& rule, const std::vector<double>& entropies) {
    rule.begin_round();
    for (std::size_t i = 0; i < entropies.size(); ++i)
        if (rule.should_stop(entropies[i])) return static_cast<int>(i) + 1;
    return 0;
}

int stop_of(const StopRuleOptions& options, const std::vector<double>& entropies) {
    StopRule rule(options);
    return stop_of(rule, entropies);
}

TEST(StopRule, HasOneNameForEachKind) {
    EXPECT_EQ(all_stop_rules().size(), 5u);
    for (const StopRuleKind kind : all_stop_rules())
        EXPECT_EQ(parse_stop_rule(to_string(kind)), kind);
    EXPECT_EQ(to_string(StopRuleKind::static_threshold), "static");
    EXPECT_EQ(to_string(StopRuleKind::moving_average), "moving-average");
    EXPECT_FALSE(parse_stop_rule("Static"));
    EXPECT_FALSE(parse_stop_rule(""));
}

TEST(StopRule, StaticStopsAtTheThresholdAndNotBelow) {
    const auto options = options_of(StopRuleKind::static_threshold);
    EXPECT_EQ(stop_of(options, {2.25}), 1);
    EXPECT_EQ(stop_of(options, {2.2499, 2.2499, 2.3}), 3);
    EXPECT_EQ(stop_of(options, {1, 2, 2.2, 0}), 0);
    auto low = options;
    low.threshold = 0.3;
    EXPECT_EQ(stop_of(low, {0.1, 0.3}), 2);
    low.threshold = 0;
    EXPECT_EQ(stop_of(low, {0}), 1);
}

TEST(StopRule, MovingAverageNeverStopsAtTheFirstToken) {
    EXPECT_EQ(stop_of(options_of(StopRuleKind::moving_average), {100}), 0);
}

TEST(StopRule, MovingAverageComparesSquaresWithTheMeanOfThoseBefore) {
    // lambda 0.5. t = 2: 1 >= 0.5 * 4 no. t = 3: 1.21 >= 0.5 * (4 + 1) / 2 = 1.25 no.
    // t = 4: 1.0404 >= 0.5 * (4 + 1 + 1.21) / 3 = 1.035 yes.
    EXPECT_EQ(stop_of(options_of(StopRuleKind::moving_average), {2, 1, 1.1, 1.02}), 4);
    EXPECT_EQ(stop_of(options_of(StopRuleKind::moving_average), {2, 1, 1.1, 1.01}), 0);
    auto equal = options_of(StopRuleKind::moving_average);
    equal.factor = 1; // at the border: 4 >= 1 * 4
    EXPECT_EQ(stop_of(equal, {2, 2}), 2);
}

TEST(StopRule, MovingAverageForgetsWhatIsOutsideItsWindow) {
    auto options = options_of(StopRuleKind::moving_average);
    options.factor = 1;
    options.window = 2;
    // t = 4 looks at 4 and 1 (mean 2.5): 2.56 >= 2.5 stops, though the mean with 100 is 35.
    EXPECT_EQ(stop_of(options, {10, 2, 1, 1.6}), 4);
    EXPECT_EQ(stop_of(options, {10, 2, 1, 1.58}), 0);
    options.window = 100; // longer than the phase: all before
    EXPECT_EQ(stop_of(options, {10, 2, 1, 1.6}), 0);
    EXPECT_EQ(stop_of(options, {10, 2, 1, 6}), 4); // 36 >= 35
}

TEST(StopRule, MovingAverageDoesNotStopWhereTheMeanIsZero) {
    EXPECT_EQ(stop_of(options_of(StopRuleKind::moving_average), {0, 0, 0}), 0);
    EXPECT_EQ(stop_of(options_of(StopRuleKind::moving_average), {0, 5}), 0);
    EXPECT_EQ(stop_of(options_of(StopRuleKind::moving_average), {0, 5, 5}), 3); // mean 12.5
}

TEST(StopRule, CumulativeSumsSquaresOfTheTokenAndItsWindow) {
    const auto options = options_of(StopRuleKind::cumulative);
    EXPECT_EQ(stop_of(options, {3, 1}), 2);            // 9, 10
    EXPECT_EQ(stop_of(options, {3, 0.9, 0.4}), 0);     // 9, 9.81, 9.97
    EXPECT_EQ(stop_of(options, {std::sqrt(11.0)}), 1); // t = 1 counts
    auto narrow = options;
    narrow.window = 1; // the token and one before: 9, 9, 4.25, 4.5
    EXPECT_EQ(stop_of(narrow, {3, 0, 2, 0.5, 2}), 0);
    EXPECT_EQ(stop_of(narrow, {1, 1, 3, 1}), 3);
    narrow.threshold = 4.25;
    EXPECT_EQ(stop_of(narrow, {0, 2, 0.5}), 3);
    auto wide = options;
    wide.window = 7;
    // Eight tokens of 1.1 give 9.68 and no more.
    EXPECT_EQ(stop_of(wide, {1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1}), 0);
    EXPECT_EQ(stop_of(wide, {1.12, 1.12, 1.12, 1.12, 1.12, 1.12, 1.12, 1.12}), 8); // 10.04
}

TEST(StopRule, ConstantCountsTokensAndNothingElse) {
    auto options = options_of(StopRuleKind::constant);
    EXPECT_FALSE(StopRule(options).needs_entropy());
    EXPECT_EQ(stop_of(options, {9, 9, 9, 9, 9, 9}), 5);
    EXPECT_EQ(stop_of(options, {kNan, kNan, kNan, kNan, kNan, kNan}), 5);
    options.num_draft_tokens = 40; // capped
    EXPECT_EQ(stop_of(options, std::vector<double>(50)), 15);
    options.num_draft_tokens = 1;
    EXPECT_EQ(stop_of(options, {0}), 1);
}

TEST(StopRule, EveryRuleStopsAtTheCap) {
    for (const StopRuleKind kind : all_stop_rules()) {
        auto options = options_of(kind);
        options.max_tokens = 4;
        options.num_draft_tokens = 9;
        EXPECT_EQ(stop_of(options, std::vector<double>(20, 0.0)), 4) << to_string(kind);
    }
}

TEST(StopRule, NoRuleLooksBeforeTheLeastNumberOfTokens) {
    auto options = options_of(StopRuleKind::static_threshold);
    options.min_tokens = 3;
    EXPECT_EQ(stop_of(options, {9, 9, 9, 9}), 3);
    EXPECT_EQ(stop_of(options, {9, 9, 1, 9}), 4);
    options.kind = StopRuleKind::constant;
    options.num_draft_tokens = 2;
    EXPECT_EQ(stop_of(options, {9, 9, 9, 9}), 3);
    options.kind = StopRuleKind::cumulative; // what came before the third still counts
    EXPECT_EQ(stop_of(options, {3, 1, 0, 0}), 3);
    options.kind = StopRuleKind::moving_average;
    EXPECT_EQ(stop_of(options, {1, 1, 0.1, 1}), 4);
}

TEST(StopRule, SaysWhetherTheRuleOrTheCapStoppedIt) {
    auto options = options_of(StopRuleKind::static_threshold);
    options.max_tokens = 2;
    StopRule rule(options);
    EXPECT_EQ(rule.end(), DraftEnd::none);
    EXPECT_EQ(stop_of(rule, {1, 1}), 2);
    EXPECT_EQ(rule.end(), DraftEnd::cap);
    EXPECT_FALSE(rule.is_threshold_rule());
    EXPECT_EQ(stop_of(rule, {1, 5}), 2); // both: the rule it is
    EXPECT_EQ(rule.end(), DraftEnd::rule);
    EXPECT_TRUE(rule.is_threshold_rule());
    rule.begin_round();
    EXPECT_EQ(rule.end(), DraftEnd::none);
    EXPECT_FALSE(rule.is_threshold_rule());
    options.kind = StopRuleKind::constant;
    options.num_draft_tokens = 1;
    StopRule constant(options);
    EXPECT_EQ(stop_of(constant, {1}), 1);
    EXPECT_EQ(constant.end(), DraftEnd::rule);
    EXPECT_FALSE(constant.is_threshold_rule());
}

TEST(StopRule, EntropyRulesDoNotFireWithoutAnEntropy) {
    for (const StopRuleKind kind : all_stop_rules()) {
        if (!StopRule(options_of(kind)).needs_entropy()) continue;
        EXPECT_EQ(stop_of(options_of(kind), std::vector<double>(14, kNan)), 0) << to_string(kind);
        EXPECT_EQ(stop_of(options_of(kind), std::vector<double>(16, kNan)), 15) << to_string(kind);
    }
    EXPECT_EQ(stop_of(options_of(StopRuleKind::cumulative), {3, kNan, 1}), 3);
}

TEST(StopRule, ForgetsTheRoundBefore) {
    StopRule cumulative(options_of(StopRuleKind::cumulative));
    EXPECT_EQ(stop_of(cumulative, {3}), 0);
    EXPECT_EQ(stop_of(cumulative, {3}), 0);
    StopRule average(options_of(StopRuleKind::moving_average));
    EXPECT_EQ(stop_of(average, {1}), 0);
    EXPECT_EQ(stop_of(average, {1}), 0);
}

// The length of a round of `rule`.
int length_of(StopRule& rule) {
    return stop_of(rule, std::vector<double>(200));
}

TEST(StopRule, HeuristicGrowsByTwoAndShrinksByOne) {
    StopRule rule(options_of(StopRuleKind::heuristic));
    EXPECT_FALSE(rule.needs_entropy());
    EXPECT_EQ(length_of(rule), 5);
    rule.end_round({5, 5});
    EXPECT_EQ(length_of(rule), 7);
    rule.end_round({7, 6});
    EXPECT_EQ(length_of(rule), 6);
    rule.end_round({6, 0});
    EXPECT_EQ(length_of(rule), 5);
}

TEST(StopRule, HeuristicStaysBetweenOneAndTheCap) {
    StopRule rule(options_of(StopRuleKind::heuristic));
    for (int i = 0; i < 10; ++i)
        rule.end_round({5, 0});
    EXPECT_EQ(length_of(rule), 1);
    rule.end_round({1, 1});
    EXPECT_EQ(length_of(rule), 3);
    for (int i = 0; i < 20; ++i)
        rule.end_round({5, 5});
    EXPECT_EQ(length_of(rule), 15);
    rule.end_round({15, 3}); // from the cap, not from where growing without it would have led
    EXPECT_EQ(length_of(rule), 14);
    auto options = options_of(StopRuleKind::heuristic);
    options.num_draft_tokens = 100;
    StopRule capped(options);
    capped.end_round({15, 3});
    EXPECT_EQ(length_of(capped), 14);
}

TEST(StopRule, HeuristicLearnsNothingFromRoundsCutShortOrEmpty) {
    StopRule rule(options_of(StopRuleKind::heuristic));
    rule.end_round({3, 3, true});
    rule.end_round({3, 0, true});
    rule.end_round({0, 0});
    EXPECT_EQ(length_of(rule), 5);
}

TEST(StopRule, HeuristicStartsAfreshWithEachSequence) {
    StopRule rule(options_of(StopRuleKind::heuristic));
    rule.end_round({5, 5});
    rule.begin_sequence();
    EXPECT_EQ(length_of(rule), 5);
}

TEST(StopRule, ConstantLearnsNothing) {
    StopRule rule(options_of(StopRuleKind::constant));
    rule.end_round({5, 5});
    EXPECT_EQ(length_of(rule), 5);
}

TEST(StopRuleOptions, AreRefusedWithTheOptionsName) {
    const auto names = [](const StopRuleOptions& options, const std::string& option) {
        EXPECT_EQ(why_invalid(options).find(option), 0u) << why_invalid(options);
        EXPECT_THROW(StopRule{options}, std::invalid_argument);
    };
    const StopRuleOptions good;
    EXPECT_EQ(why_invalid(good), "");
    auto bad = good;
    bad.threshold = 2; // moving-average has none
    names(bad, "--entropy-threshold");
    for (const double threshold : {-1.0, kNan, std::numeric_limits<double>::infinity()}) {
        bad = options_of(StopRuleKind::static_threshold);
        bad.threshold = threshold;
        names(bad, "--entropy-threshold");
    }
    for (const double factor : {0.0, -1.0, kNan}) {
        bad = good;
        bad.factor = factor;
        names(bad, "--entropy-factor");
    }
    bad = good;
    bad.window = 0;
    names(bad, "--entropy-window");
    bad = good;
    bad.num_draft_tokens = 0;
    names(bad, "--num-draft-tokens");
    for (const int most : {0, 128}) {
        bad = good;
        bad.max_tokens = most;
        names(bad, "--max-draft-tokens");
    }
    for (const int least : {0, 16}) {
        bad = good;
        bad.min_tokens = least;
        names(bad, "--min-draft-tokens");
    }
    EXPECT_EQ(options_of(StopRuleKind::cumulative).threshold_or_default(), 10);
    EXPECT_EQ(options_of(StopRuleKind::static_threshold).threshold_or_default(), 2.25);
}

} // namespace
} // namespace entrodraft::spec
