// The textbook's tables: values of the paper and by hand, and the command from outside.
#include "launch/cmd/bench/theory_table.h"
#include "tests/launch/command_line.h"

#include <gtest/gtest.h>

namespace bench_theory_test {

using namespace entrodraft::launch;
using test::Json;

TEST(Theory, BestDraftLengthIsTheShortestOfTheFastest) {
    // By hand: at alpha 0.8 and c 0.05 the factor rises up to k = 8, (1 - 0.8^9) / (0.2 * 1.4), and falls at 9.
    const TheoryRow row = best_draft_length(0.8, 0.05, 0.05, 15);
    EXPECT_EQ(row.best_k, 8);
    EXPECT_NEAR(row.expected_tokens, 4.32891136, 1e-9);
    EXPECT_NEAR(row.walltime_factor, 4.32891136 / 1.4, 1e-9);
    EXPECT_NEAR(row.operations_factor, (8 * 0.05 + 9) / 4.32891136, 1e-9);
    ASSERT_TRUE(row.bound);
    EXPECT_NEAR(*row.bound, 1.8 / 1.05, 1e-12);
    EXPECT_GE(row.walltime_factor, *row.bound);
}

TEST(Theory, DraftsNothingWhereItCannotPay) {
    for (const double c : {0.3, 0.5}) { // Corollary 3.9: only alpha > c pays
        const TheoryRow row = best_draft_length(0.3, c, c, 15);
        EXPECT_EQ(row.best_k, 0);
        EXPECT_EQ(row.walltime_factor, 1);
        EXPECT_EQ(row.operations_factor, 1);
        EXPECT_FALSE(row.bound);
    }
    EXPECT_GE(best_draft_length(0.3, 0.29, 0.29, 15).best_k, 1);
}

TEST(Theory, EverythingAcceptedDraftsToTheCap) {
    const TheoryRow row = best_draft_length(1, 0.1, 0, 12);
    EXPECT_EQ(row.best_k, 12);
    EXPECT_NEAR(row.walltime_factor, 13 / 2.2, 1e-12);
    EXPECT_NEAR(row.operations_factor, 1, 1e-12);
}

TEST(Theory, RowsGoThroughAllAlphasForEachC) {
    const auto rows = theory_rows({{0.5, 0.9}, {0, 0.1}, {0.2, 0.3}, 10});
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[1].alpha, 0.9);
    EXPECT_EQ(rows[1].c, 0);
    EXPECT_EQ(rows[1].best_k, 10);
    // Table 1 of the paper: alpha 0.9, 10 drafted tokens, free: 6.86 times as fast.
    EXPECT_NEAR(rows[1].walltime_factor, 6.86, 0.005);
    EXPECT_EQ(rows[2].c, 0.1);
    EXPECT_EQ(rows[2].c_operations, 0.3);
}

TEST(Theory, CommandPrintsTablesAndJson) {
    const auto text = test::run({"bench", "theory", "--alpha", "0.6,0.8", "--c", "0.05", "--most-tokens", "5"});
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_NE(text.out.find("Figure 3"), std::string::npos);
    EXPECT_EQ(text.out.find("k=7"), std::string::npos) << "longer than --most-tokens";
    const test::ScratchFile output("");
    const auto json = test::run({"bench", "theory", "--json", "--alpha", "0.8,0", "--c", "0,0.05", "--c-operations",
                                 "0.1", "--output", output.path()});
    ASSERT_EQ(json.code, 0) << json.err;
    const Json result = Json::parse(json.out);
    EXPECT_EQ(result, Json::parse(output.text()));
    EXPECT_EQ(result["command"], "theory");
    ASSERT_EQ(result["rows"].size(), 4u);
    EXPECT_EQ(result["rows"][2]["best_k"], 8);
    EXPECT_EQ(result["rows"][2]["c_operations"], 0.1);
    EXPECT_TRUE(result["rows"][1]["bound"].is_null());
    // Table 1 of the paper: alpha 0.8, 5 drafted tokens, free: 3.69 times as fast for 1.63 times the operations.
    const test::Strings table = {"bench", "theory", "--json", "--alpha", "0.8", "--c", "0", "--most-tokens", "5"};
    const Json paper = Json::parse(test::run(table).out);
    EXPECT_NEAR(paper["rows"][0]["walltime_factor"].get<double>(), 3.69, 0.005);
    EXPECT_NEAR(paper["rows"][0]["operations_factor"].get<double>(), 1.63, 0.005);
}

TEST(Theory, BadOptionsAreRefusedInOneLine) {
    const test::Strings bad[] = {{"--alpha", "1.5"},
                                 {"--alpha", ""},
                                 {"--c", "-1"},
                                 {"--c", "0.1,x"},
                                 {"--most-tokens", "0"},
                                 {"--output", "-"},
                                 {"--c-operations", "1,2"},
                                 {"--c", "0.1,0.2,0.3", "--c-operations", "1,2"}};
    using test::operator+;
    for (const test::Strings& options : bad) {
        const auto ended = test::run(test::Strings{"bench", "theory"} + options);
        EXPECT_EQ(ended.code, 2) << options[0] << ' ' << options[1];
        EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    }
}

} // namespace bench_theory_test
