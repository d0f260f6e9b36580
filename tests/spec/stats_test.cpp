// Figures compared with values worked out by hand, and the costs file.
#include "spec/protocol/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

namespace entrodraft::spec {
namespace stats_test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Stats example() {
    Stats stats;
    stats.sequences = 1;
    stats.prompt_tokens = 10;
    stats.new_tokens = 9;
    stats.count_round(4, 4, 4);
    stats.count_round(4, 1, 5);
    stats.count_round(0, 0, 0);
    stats.seconds.prefill = 0.5;
    stats.seconds.total = 2.3;
    return stats;
}

TEST(Stats, CountsRounds) {
    const Stats stats = example();
    EXPECT_EQ(stats.rounds, 3);
    EXPECT_EQ(stats.target_passes, 3);
    EXPECT_EQ(stats.drafted, 8);
    EXPECT_EQ(stats.accepted, 5);
    EXPECT_EQ(stats.draft_passes, 9);
    EXPECT_EQ(stats.passes_of_rows, (std::vector<std::int64_t>{0, 1, 0, 0, 0, 2}));
    EXPECT_THROW(Stats().count_round(3, 4, 3), std::invalid_argument);
    EXPECT_THROW(Stats().count_round(-1, 0, 3), std::invalid_argument);
}

TEST(Stats, CountPositionsOfATreeAndNotItsTokens) {
    //  0    1       of -1
    //  2 3  4
    //  5
    const std::vector<std::int8_t> parents = {-1, -1, 0, 0, 1, 2};
    const auto positions_after = [&](int last_accepted) {
        Stats stats;
        stats.count_tree(parents, last_accepted, 3);
        EXPECT_EQ(stats.drafted, 6);
        EXPECT_EQ(stats.drafted_levels, 3);
        EXPECT_EQ(stats.draft_passes, 3);
        EXPECT_EQ(stats.passes_of_rows[7], 1);
        std::vector<std::pair<std::int64_t, std::int64_t>> positions;
        for (const Acceptances& at : stats.by_position)
            positions.emplace_back(at.verified, at.accepted);
        EXPECT_EQ(stats.accepted, stats.rounds_of_accepted.size() - 1);
        return positions;
    };
    using Positions = std::vector<std::pair<std::int64_t, std::int64_t>>;
    EXPECT_EQ(positions_after(-1), (Positions{{1, 0}}));
    EXPECT_EQ(positions_after(1), (Positions{{1, 1}, {1, 0}}));
    EXPECT_EQ(positions_after(4), (Positions{{1, 1}, {1, 1}})); // nothing was drafted after it
    EXPECT_EQ(positions_after(5), (Positions{{1, 1}, {1, 1}, {1, 1}}));
    Stats chain, tree;
    chain.count_round(4, 2, 4);
    tree.count_tree(chain_parents(4), 1, 4);
    EXPECT_EQ(tree.by_position.size(), chain.by_position.size());
    EXPECT_EQ(tree.drafted_levels, chain.drafted_levels);
}

TEST(Stats, MakesItsFigures) {
    const Stats stats = example();
    EXPECT_DOUBLE_EQ(stats.draft_acceptance_rate(), 5.0 / 8);
    EXPECT_DOUBLE_EQ(stats.mean_acceptance_length(), 5.0 / 3 + 1);
    EXPECT_DOUBLE_EQ(stats.tokens_per_target_pass(), 3.0);
    EXPECT_NEAR(stats.ms_per_token(), 200.0, 1e-9);
}

TEST(Stats, OfNothingAreZeroAndNotNan) {
    const Stats stats;
    EXPECT_EQ(stats.draft_acceptance_rate(), 0);
    EXPECT_EQ(stats.mean_acceptance_length(), 0);
    EXPECT_EQ(stats.tokens_per_target_pass(), 0);
    EXPECT_EQ(stats.ms_per_token(), 0);
    EXPECT_EQ(predicted_speedup(stats, std::vector{Costs{0.1, {1}}}), 0);
}

TEST(Stats, AddUpFieldByField) {
    Stats stats;
    stats.count_round(1, 1, 1);
    stats += example();
    stats += example();
    EXPECT_EQ(stats.sequences, 2);
    EXPECT_EQ(stats.prompt_tokens, 20);
    EXPECT_EQ(stats.new_tokens, 18);
    EXPECT_EQ(stats.rounds, 7);
    EXPECT_EQ(stats.target_passes, 7);
    EXPECT_EQ(stats.drafted, 17);
    EXPECT_EQ(stats.accepted, 11);
    EXPECT_EQ(stats.draft_passes, 19);
    EXPECT_EQ(stats.passes_of_rows, (std::vector<std::int64_t>{0, 2, 1, 0, 0, 4}));
    StepSeconds all{1, 2, 3, 4, 5, 6, 7, 8, 9};
    all += all;
    EXPECT_EQ(all.draft + all.entropy * 1e2 + all.broadcast * 1e4 + all.score * 1e6, 8060402);
    EXPECT_EQ(all.gather + all.verify * 1e2 + all.prefill * 1e4 + all.first_token * 1e6, 16141210);
    EXPECT_EQ(all.total, 18);
}

TEST(Stats, TimePerOutputTokenLeavesTheFirstTokenOut) {
    Stats stats;
    stats.seconds.first_token = 0.5;
    stats.seconds.total = 1.5;
    stats.new_tokens = 1;
    EXPECT_FALSE(stats.tpot_ms());
    stats.new_tokens = 5;
    EXPECT_DOUBLE_EQ(stats.tpot_ms().value(), 250);
}

TEST(Costs, AreLinearBetweenMeasuredRowsAndHeldAtTheEnds) {
    const Costs costs{0.1, {1, 2, kNan, kNan, 8, kNan}};
    EXPECT_DOUBLE_EQ(costs.target_seconds(1), 1);
    EXPECT_DOUBLE_EQ(costs.target_seconds(2), 2);
    EXPECT_DOUBLE_EQ(costs.target_seconds(3), 4);
    EXPECT_DOUBLE_EQ(costs.target_seconds(4), 6);
    EXPECT_DOUBLE_EQ(costs.target_seconds(5), 8);
    EXPECT_DOUBLE_EQ(costs.target_seconds(6), 8);
    EXPECT_DOUBLE_EQ(costs.target_seconds(100), 8);
    EXPECT_THROW(costs.target_seconds(0), std::invalid_argument);
    EXPECT_THROW(Costs{}.target_seconds(1), std::invalid_argument);
}

TEST(Stats, PredictTheSpeedupFromCountsAndCosts) {
    // 9 tokens at 1.0 over 9 passes at 0.1 and target passes of 1 and twice 5 rows: 9 / (0.9 + 1 + 2 * 1.3) = 2.
    EXPECT_DOUBLE_EQ(predicted_speedup(example(), std::vector{Costs{0.1, {1, kNan, kNan, kNan, 1.3}}}), 2.0);
}

TEST(Theory, FollowsLeviathan) {
    EXPECT_DOUBLE_EQ(expected_tokens(0.5, 2), 1.75);
    EXPECT_DOUBLE_EQ(expected_tokens(0, 5), 1);
    EXPECT_DOUBLE_EQ(expected_tokens(1, 5), 6);
    EXPECT_NEAR(expected_tokens(0.8, 5), (1 - std::pow(0.8, 6)) / 0.2, 1e-12);
    EXPECT_THROW(expected_tokens(1.1, 3), std::invalid_argument);
    EXPECT_THROW(expected_tokens(kNan, 3), std::invalid_argument);
    EXPECT_THROW(expected_tokens(0.5, -1), std::invalid_argument);
}

TEST(RepeatedNgramShare, CountsPositionsSeenBefore) {
    const std::vector<std::int32_t> text = {1, 2, 3, 1, 2, 3, 1};
    EXPECT_DOUBLE_EQ(repeated_ngram_share(text, 1), 4.0 / 7);
    EXPECT_DOUBLE_EQ(repeated_ngram_share(text, 2), 3.0 / 6); // 12 23 31 | 12 23 31
    EXPECT_DOUBLE_EQ(repeated_ngram_share(text, 3), 2.0 / 5); // 123 231 312 | 123 231
    EXPECT_DOUBLE_EQ(repeated_ngram_share(text, 7), 0);
    EXPECT_DOUBLE_EQ(repeated_ngram_share(text, 8), 0);
    EXPECT_DOUBLE_EQ(repeated_ngram_share({}, 1), 0);
    EXPECT_DOUBLE_EQ(repeated_ngram_share(std::vector<std::int32_t>(10, 5), 2), 8.0 / 9);
    EXPECT_THROW(repeated_ngram_share(text, 0), std::invalid_argument);
}

// A file of these contents, removed at the end of the test.
class CostsFile : public testing::Test {
  protected:
    std::string write(const std::string& text) {
        std::ofstream(path_, std::ios::binary) << text;
        return path_.string();
    }
    void TearDown() override { std::filesystem::remove(path_); }

    // Checks that reading `text` fails with a line that names the file and holds `words`.
    void expect_bad(const std::string& text, const std::string& words) {
        try {
            read_costs(write(text));
            ADD_FAILURE() << "accepted: " << text.substr(0, 100);
        } catch (const std::runtime_error& error) {
            const std::string message = error.what();
            EXPECT_EQ(message.find(path_.string() + ": "), 0u) << message;
            EXPECT_NE(message.find(words), std::string::npos) << message;
            EXPECT_EQ(message.find('\n'), std::string::npos) << message;
        }
    }

    std::filesystem::path path_ =
        std::filesystem::temp_directory_path() /
        ("entrodraft_costs_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
         std::to_string(reinterpret_cast<std::uintptr_t>(this)) + ".json");
};

TEST_F(CostsFile, RoundTrips) {
    const Costs costs{0.0001234567, {0.1 / 3, kNan, 0.25}};
    const Costs read = read_costs(write(to_json(costs)));
    EXPECT_DOUBLE_EQ(read.t_draft, costs.t_draft);
    ASSERT_EQ(read.t_target.size(), 3u);
    EXPECT_DOUBLE_EQ(read.t_target[0], costs.t_target[0]);
    EXPECT_TRUE(std::isnan(read.t_target[1]));
    EXPECT_DOUBLE_EQ(read.t_target[2], costs.t_target[2]);
}

TEST_F(CostsFile, KeepsTheCostOfARoundsFirstDraftPassWhereThereIsOne) {
    Costs costs{0.5, {2}};
    EXPECT_FALSE(read_costs(write(to_json(costs))).t_first_draft.has_value());
    costs.t_first_draft = 0.75;
    EXPECT_DOUBLE_EQ(read_costs(write(to_json(costs))).t_first_draft.value(), 0.75);
}

TEST_F(CostsFile, KeepsTheCostOfADraftPassesFurtherRows) {
    Costs costs{0.5, {2}};
    EXPECT_DOUBLE_EQ(read_costs(write(to_json(costs))).t_draft_row, 0);
    costs.t_draft_row = 0.125;
    EXPECT_DOUBLE_EQ(read_costs(write(to_json(costs))).t_draft_row, 0.125);
    EXPECT_DOUBLE_EQ(costs.draft_seconds(3, 4), 3 * 0.5 + 4 * 0.125);
}

TEST(Stats, PredictsWithTheRowsOfTreesLevelsAtTheirOwnCost) {
    Stats stats;
    const std::vector<std::int8_t> parents = {-1, -1, 0, 1};
    stats.count_tree(parents, 0, 2, 1); // 5 rows, after passes of 1 and of 2 rows
    stats += Stats(stats);
    stats.new_tokens = 4;
    EXPECT_EQ(stats.further_draft_rows, 2);
    Costs costs{1, {10, 11, 12, 13, 14}};
    costs.t_draft_row = 0.25;
    EXPECT_DOUBLE_EQ(predicted_speedup(stats, std::vector{costs}), 40.0 / (2 * (2 * 1 + 0.25 + 14)));
}

TEST(Stats, PredictsWithTheFirstDraftPassOfARoundAtItsOwnCost) {
    Stats stats;
    stats.count_round(2, 1, 2); // 3 rows
    stats.count_round(0, 0, 0); // 1 row, no drafting
    stats.count_round(1, 1, 1); // 2 rows
    stats.new_tokens = 5;
    EXPECT_EQ(stats.drafting_rounds, 2);
    Costs costs{1, {10, 11, 12}};
    EXPECT_DOUBLE_EQ(predicted_speedup(stats, std::vector{costs}), 50.0 / (3 * 1 + 10 + 11 + 12));
    costs.t_first_draft = 4;
    EXPECT_DOUBLE_EQ(predicted_speedup(stats, std::vector{costs}), 50.0 / (2 * 4 + 1 + 10 + 11 + 12));
}

TEST_F(CostsFile, IsReadInMillisecondsAndOtherFieldsAreIgnored) {
    const Costs costs =
        read_costs(write(R"({"device": {"a": [1]}, "schema_version": 1, "t_target_ms": [2, 3.5], "t_draft_ms": 0})"));
    EXPECT_DOUBLE_EQ(costs.t_draft, 0);
    EXPECT_DOUBLE_EQ(costs.t_target[0], 0.002);
    EXPECT_DOUBLE_EQ(costs.t_target[1], 0.0035);
}

TEST_F(CostsFile, IsRefusedWithFileAndField) {
    expect_bad("", "no valid JSON");
    expect_bad("{\"schema_version\": 1,", "no valid JSON");
    expect_bad("\xff\xfe", "no valid JSON");
    expect_bad("{} {}", "no valid JSON");
    expect_bad("[]", "one JSON object");
    expect_bad("{}", "schema_version is missing");
    expect_bad(R"({"schema_version": 2, "t_draft_ms": 1, "t_target_ms": [1]})", "schema_version must be 1");
    expect_bad(R"({"schema_version": 1.0, "t_draft_ms": 1, "t_target_ms": [1]})", "schema_version must be 1");
    expect_bad(R"({"schema_version": 1, "t_target_ms": [1]})", "t_draft_ms is missing");
    expect_bad(R"({"schema_version": 1, "t_draft_ms": 1})", "t_target_ms is missing");
    expect_bad(R"({"schema_version": 1, "t_draft_ms": "1", "t_target_ms": [1]})", "t_draft_ms must be");
    expect_bad(R"({"schema_version": 1, "t_draft_ms": -1, "t_target_ms": [1]})", "t_draft_ms must be");
    expect_bad(R"({"schema_version": 1, "t_draft_ms": 1, "t_target_ms": 1})", "t_target_ms must be a list");
    expect_bad(R"({"schema_version": 1, "t_draft_ms": 1, "t_target_ms": []})", "t_target_ms must be a list");
    expect_bad(R"({"schema_version": 1, "t_draft_ms": 1, "t_target_ms": [1, 0]})", "t_target_ms[1]");
    expect_bad(R"({"schema_version": 1, "t_draft_ms": 1, "t_target_ms": [5e-324]})", "t_target_ms[0]");
    expect_bad(R"({"schema_version": 1, "t_draft_ms": 1, "t_target_ms": [null, 1]})", "t_target_ms[0]");
    expect_bad(R"({"schema_version": 1, "t_draft_ms": 1, "t_target_ms": [1, 1e999]})", "JSON");
    expect_bad(R"({"schema_version": 1, "t_draft_ms": 1, "t_draft_ms": 2, "t_target_ms": [1]})", "appears twice");
    expect_bad(std::string(2 << 20, ' '), "1 MiB");
    expect_bad(std::string(500000, '['), "nested deeper than");
    EXPECT_THROW(read_costs("/dev/null/nonexistent/costs.json"), std::runtime_error);
    EXPECT_THROW(read_costs("/"), std::runtime_error);
}

// ---- by position, by entropy, alpha ----

TEST(Stats, CountsWhatStoodByPlaceInTheDraftAndWhatWasNeverVerifiedNotAtAll) {
    const Stats stats = example(); // 4 of 4, 1 of 4, 0 of 0
    const auto counts = [&](std::size_t i) {
        return std::pair{stats.by_position[i].verified, stats.by_position[i].accepted};
    };
    ASSERT_EQ(stats.by_position.size(), 4u);
    EXPECT_EQ(counts(0), (std::pair<std::int64_t, std::int64_t>{2, 2}));
    EXPECT_EQ(counts(1), (std::pair<std::int64_t, std::int64_t>{2, 1}));
    EXPECT_EQ(counts(2), (std::pair<std::int64_t, std::int64_t>{1, 1}));
    EXPECT_EQ(counts(3), (std::pair<std::int64_t, std::int64_t>{1, 1}));
    EXPECT_EQ(stats.rounds_of_accepted, (std::vector<std::int64_t>{1, 1, 0, 0, 1}));
}

TEST(Stats, CountsWhatStoodByEntropy) {
    constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
    Stats stats;
    stats.count_entropies({}, 0);
    EXPECT_TRUE(stats.by_entropy.empty());
    stats.count_entropies(std::vector{kNone, kNone}, 2);
    EXPECT_TRUE(stats.by_entropy.empty());
    stats.count_entropies(std::vector{0.1F, 0.6F, kNone, 90.0F}, 4);
    stats.count_entropies(std::vector{0.2F, 0.3F, 0.4F}, 1); // the last was not verified
    stats.count_entropies(std::vector{0.5F}, 0);
    ASSERT_EQ(stats.by_entropy.size(), kEntropyBins);
    EXPECT_EQ(stats.by_entropy[0].verified, 3);
    EXPECT_EQ(stats.by_entropy[0].accepted, 2);
    EXPECT_EQ(stats.by_entropy[1].verified, 2);
    EXPECT_EQ(stats.by_entropy[1].accepted, 1);
    EXPECT_EQ(stats.by_entropy[kEntropyBins - 1].verified, 1);
    EXPECT_EQ(stats.by_entropy[kEntropyBins - 1].accepted, 1);
}

TEST(Stats, AddUpTheirTablesAndLevels) {
    Stats one = example();
    one.count_entropies(std::vector{0.1F}, 1);
    one.overlap = 1.5;
    one.overlaps = 3;
    one.levels = {example(), example()};
    Stats sum;
    sum.count_round(1, 0, 1);
    sum.levels = {example()};
    sum += one;
    EXPECT_EQ(sum.by_position.size(), 4u);
    EXPECT_EQ(sum.by_position[0].verified, 3);
    EXPECT_EQ(sum.by_position[0].accepted, 2);
    EXPECT_EQ(sum.by_entropy[0].verified, 1);
    EXPECT_EQ(sum.rounds_of_accepted, (std::vector<std::int64_t>{2, 1, 0, 0, 1}));
    EXPECT_EQ(sum.drafting_rounds, 3);
    EXPECT_DOUBLE_EQ(sum.alpha().value(), 0.5);
    ASSERT_EQ(sum.levels.size(), 2u);
    EXPECT_EQ(sum.levels[0].drafted, 16);
    EXPECT_EQ(sum.levels[1].drafted, 8);
    add_levels(sum.levels, {example()}, 2);
    ASSERT_EQ(sum.levels.size(), 3u);
    EXPECT_EQ(sum.levels[2].drafted, 8);
    EXPECT_EQ(sum.levels[1].drafted, 8);
    EXPECT_FALSE(Stats().alpha().has_value());
}

// ---- a cascade's prediction, and the i.i.d. model ----

TEST(Stats, PredictACascadeFromThePassesOfEveryLevel) {
    Stats stats;
    stats.count_round(2, 1, 2); // a target pass of 3 rows, after 2 passes of the middle
    stats.count_round(1, 1, 1); // one of 2 rows
    stats.new_tokens = 5;
    Stats middle;
    middle.count_round(1, 1, 1); // 2 rows, after a pass of the small one
    middle.count_round(2, 0, 2); // 3 rows
    middle.count_round(0, 0, 0); // 1 row, nothing drafted
    stats.levels = {middle};
    const Costs of_target{1000, {10, 11, 12}, std::nullopt}; // t_draft is not used: the level below has better costs
    Costs of_middle{1, {2, 3, 4}, std::nullopt};
    const auto predicted = [&] { return predicted_speedup(stats, std::vector{of_target, of_middle}); };
    EXPECT_DOUBLE_EQ(predicted(), 50.0 / (12 + 11 + (3 + 4 + 2) + 3 * 1));
    of_middle.t_first_draft = 1.5;
    EXPECT_DOUBLE_EQ(predicted(), 50.0 / (12 + 11 + (3 + 4 + 2) + 2 * 1.5 + 1));
    EXPECT_THROW(predicted_speedup(stats, std::vector{of_target}), std::invalid_argument);
}

TEST(IidModel, IsThatOfTheRunsAlphaAndMeanDraft) {
    Stats stats;
    stats.count_round(2, 1, 2);
    stats.count_round(2, 2, 2);
    stats.new_tokens = 5;
    stats.overlap = 2;
    stats.overlaps = 4;
    const Costs costs{0.25, {1}, std::nullopt};
    IidFigures figures = iid_figures(stats, costs, 0.1);
    EXPECT_DOUBLE_EQ(figures.c, 0.25);
    EXPECT_DOUBLE_EQ(figures.mean_drafted, 2);
    EXPECT_DOUBLE_EQ(figures.expected_tokens, 1.75);
    EXPECT_DOUBLE_EQ(figures.walltime_factor, 1.75 / 1.5);
    EXPECT_DOUBLE_EQ(figures.operations_factor, (2 * 0.1 + 3) / 1.75);
    EXPECT_DOUBLE_EQ(figures.measured_operations_factor, (4 * 0.1 + 6) / 5);
    figures = iid_figures(stats, costs, 0);
    EXPECT_EQ(figures.operations_factor, 0);
    EXPECT_EQ(figures.measured_operations_factor, 0);
    stats.count_round(0, 0, 0);
    stats.count_round(2, 0, 2); // 6 tokens in 4 rounds: between drafts of 1 and 2 tokens
    EXPECT_DOUBLE_EQ(iid_figures(stats, costs, 0).expected_tokens, (1.5 + 1.75) / 2);
}

TEST(IidModel, IsSilentWhereAlphaIsNotKnown) {
    Stats stats = example();
    EXPECT_THROW(iid_figures(stats, {0.1, {1}, std::nullopt}, 0), std::invalid_argument);
    stats.overlaps = 2;
    EXPECT_NO_THROW(iid_figures(stats, {0.1, {1}, std::nullopt}, 0));
    stats.rounds = 0;
    EXPECT_THROW(iid_figures(stats, {0.1, {1}, std::nullopt}, 0), std::invalid_argument);
}

} // namespace stats_test
} // namespace entrodraft::spec
