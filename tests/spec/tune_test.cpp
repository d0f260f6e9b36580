// The search for settings finds the best of the settings that it tries, and tries the ones that it promises.
#include "spec/replay/tune.h"

#include "tests/spec/recording_support.h"

#include <gtest/gtest.h>

#include <set>

namespace tune_test {

using namespace entrodraft;
using spec::StopRuleOptions;

const spec::Costs kCosts = {0.08, {1, 1.02, 1.04, 1.06, 1.1, 1.15, 1.2, 1.25, 1.3}, 0.12};

TEST(Tune, GridHasEveryRuleInValidSettings) {
    std::set<std::string> kinds;
    for (const StopRuleOptions& rule : spec::tuning_grid(8)) {
        EXPECT_EQ(why_invalid(rule), "");
        EXPECT_EQ(rule.max_tokens, 8);
        kinds.insert(rule.name());
    }
    EXPECT_EQ(kinds.size(), spec::all_stop_rules().size());
}

TEST(Tune, NeighboursAreNearAndValid) {
    StopRuleOptions rule("static", {{"threshold", 2}});
    ASSERT_EQ(spec::neighbours(rule, 0.25).size(), 2U);
    EXPECT_DOUBLE_EQ(spec::neighbours(rule, 0.25)[0].get("threshold"), 1.5);
    EXPECT_DOUBLE_EQ(spec::neighbours(rule, 0.25)[1].get("threshold"), 2.5);
    rule = {"moving-average", {{"window", 1}}}; // there is no value below
    EXPECT_EQ(spec::neighbours(rule, 0.1).size(), 3U);
    rule = {"constant", {{"tokens", 15}}}; // the cap
    EXPECT_EQ(spec::neighbours(rule, 0.1).front().get("tokens"), 14);
    EXPECT_TRUE(spec::neighbours({"expected-gain"}, 0.1).empty());
}

TEST(Tune, FindsNoWorseThanTheGridAndSaysWhatItCosts) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    const RecordedTexts recorded =
        record_texts(pair, {request_of({1, 2, 3}, 60), request_of({40, 12, 7, 9}, 60)}, false, 8);
    const auto texts = recorded.pointers();
    const auto tuned = spec::tune({&recorded.head, texts, 0, kCosts, 8, 2});
    ASSERT_EQ(tuned.size(), spec::all_stop_rules().size());
    for (std::size_t i = 0; i < tuned.size(); ++i) {
        const spec::TunedRule& rule = tuned[i];
        SCOPED_TRACE(describe(rule.best.setting.rule));
        if (i > 0) {
            EXPECT_GE(rule.seconds_per_token, tuned[i - 1].seconds_per_token) << "the fastest goes first";
        }
        EXPECT_DOUBLE_EQ(rule.seconds_per_token, spec::seconds_per_token(rule.best.stats, kCosts));
        for (const StopRuleOptions& other : spec::tuning_grid(8)) {
            if (other.name() != rule.best.setting.rule.name()) continue;
            const spec::ReplaySetting setting = {spec::ReplayKind::rule, other, 0, kCosts};
            const auto counts = simulate(recorded.head, texts, std::span(&setting, 1), 1).front();
            EXPECT_LE(rule.seconds_per_token, spec::seconds_per_token(counts.stats, kCosts) + 1e-12);
        }
        // A real run with the same setting has the same counts.
        RunOptions options;
        options.rule = rule.best.setting.rule;
        options.costs = kCosts;
        const auto real = pair.run({request_of({1, 2, 3}, 60), request_of({40, 12, 7, 9}, 60)}, options);
        EXPECT_EQ(real[0].stats.draft_passes + real[1].stats.draft_passes, rule.best.stats.draft_passes);
        EXPECT_EQ(real[0].stats.target_passes + real[1].stats.target_passes, rule.best.stats.target_passes);
    }
}

TEST(Tune, TriesNoSettingTwice) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    const RecordedTexts recorded = record_texts(pair, {request_of({1, 2, 3}, 40)}, false, 8);
    const auto texts = recorded.pointers();
    for (const spec::TunedRule& rule : spec::tune({&recorded.head, texts, 0, kCosts, 8, 1})) {
        std::set<std::vector<double>> distinct;
        for (const spec::TriedSetting& tried : rule.tried) {
            const std::span<const double> values = tried.rule.values();
            EXPECT_TRUE(distinct.insert({values.begin(), values.end()}).second) << describe(tried.rule);
        }
        if (rule.best.setting.rule.is("constant")) {
            EXPECT_EQ(rule.tried.size(), 8U) << "the grid has them all";
        }
    }
}

TEST(Tune, SecondsAreCountsTimesCosts) {
    spec::Stats stats;
    stats.new_tokens = 5;
    stats.count_round(3, 2, 3);
    stats.count_round(1, 1, 1);
    spec::Costs costs = {0.1, {1, 2, 3, 4}, 0.5};
    EXPECT_DOUBLE_EQ(spec::predicted_seconds(stats, costs), 2 * 0.5 + 2 * 0.1 + 4 + 2);
    costs.t_round = 0.25;
    EXPECT_DOUBLE_EQ(spec::predicted_seconds(stats, costs), 2 * 0.5 + 2 * 0.1 + 4 + 2 + 0.5);
    EXPECT_DOUBLE_EQ(spec::seconds_per_token(stats, costs), 7.7 / 5);
    EXPECT_DOUBLE_EQ(spec::predicted_plain_seconds(4, costs), 5);
}

} // namespace tune_test
