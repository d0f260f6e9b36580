// bench alpha from outside: figures of drafters, and what is refused.
#include "tests/launch/command_line.h"

#include <gtest/gtest.h>

namespace bench_alpha_test {

using test::Json;
using test::ScratchFile;
using test::Strings;
using test::operator+;

const std::string kPrompts = "{\"prompt\": \"The ferry left\"}\n{\"prompt\": \"Marta\"}\n{\"prompt\": \"A\"}\n";

Json figures_of(const Strings& more) {
    const ScratchFile prompts(kPrompts);
    const test::Ended ended = test::run(Strings{"bench", "alpha", "--target", test::kTarget, "--threads", "1",
                                                "--input", prompts.path(), "--max-new-tokens", "24", "--json"} +
                                        more);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.code == 0 ? Json::parse(ended.out)["figures"] : Json::array();
}

TEST(BenchAlpha, GivesATargetAsItsOwnDraftOne) {
    const Json figures = figures_of({"--draft", test::kTarget});
    ASSERT_EQ(figures.size(), 2u);
    for (const Json& figure : figures) {
        EXPECT_EQ(figure["accepted_share"], 1);
        EXPECT_NEAR(figure["alpha"].get<double>(), 1, 1e-5);
        EXPECT_EQ(figure["proposed_share"], 1);
        EXPECT_GT(figure["places"], 20);
    }
}

TEST(BenchAlpha, TakesAnyListOfDrafters) {
    const ScratchFile text("The ferry left. Marta saw the ferry. A man left."), table("");
    ASSERT_EQ(
        test::run({"build-table", "--model", test::kTarget, "--input", text.path(), "--output", table.path()}).code, 0);
    const Json figures =
        figures_of({"--draft", test::kDraft, "--draft", test::kTarget, "--temperatures", "0,0.7,1", "--drafters",
                    "draft1,draft2,ngram,bigram,unigram,ngram+model", "--draft-table", table.path()});
    ASSERT_EQ(figures.size(), 18u);
    for (const Json& figure : figures) {
        EXPECT_EQ(figure["places"], figures[0]["places"]) << "texts of a length, whatever is drafted";
        const bool looks_up = figure["drafter"] == "ngram";
        if (looks_up) {
            EXPECT_LT(figure["proposed_share"], 1);
        } else {
            EXPECT_EQ(figure["proposed_share"], 1) << figure["drafter"];
        }
        EXPECT_LE(figure["alpha_of_all_places"].get<double>(), figure["alpha"].get<double>() + 1e-12);
        if (figure["temperature"] == 0) {
            EXPECT_NEAR(figure["alpha"], figure["accepted_share"], 1e-12);
        }
    }
}

TEST(BenchAlpha, RefusesWhatItCannotMeasure) {
    const auto refused = [](const Strings& more, const std::string& part) {
        const test::Ended ended = test::run(Strings{"bench", "alpha", "--target", test::kTarget} + more);
        EXPECT_EQ(ended.code, 2) << ended.err;
        EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
    };
    refused({"--input", "x"}, "nothing to measure");
    refused({"--draft", test::kDraft}, "--input FILE is missing");
    refused({"--draft", test::kDraft, "--drafters", "ngram", "--input", "x"}, "--draft has no effect");
    refused({"--drafters", "bigram", "--input", "x"}, "--draft-table FILE");
    refused({"--drafters", "model", "--input", "x"}, "needs --draft DIR");
}

} // namespace bench_alpha_test
