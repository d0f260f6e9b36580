// --random-weights from outside: directories that hold config.json alone.
#include "tests/launch/command_line.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

namespace random_weights_cli_test {

using test::Json;
using test::Strings;
using test::operator+;

struct RandomWeights : testing::Test {
    RandomWeights() {
        std::filesystem::copy(test::kTarget + "/config.json", directory.path() / "config.json");
        target = directory.path();
    }
    entrodraft::TemporaryDirectory directory;
    std::string target;

    std::vector<Json> texts(const Strings& more, int ranks = 1) const {
        const test::ScratchFile input("{\"prompt_token_ids\": [7, 11]}\n{\"prompt_token_ids\": [300]}\n");
        const test::Ended ended =
            test::run_ranks(ranks, Strings{"generate", "--target", target, "--input", input.path(), "--max-new-tokens",
                                           "12", "--ignore-eos", "--quiet", "--threads", "1"} +
                                       more);
        EXPECT_EQ(ended.code, 0) << ended.err;
        return test::lines_of(ended.out);
    }
};

std::vector<Json> token_ids(const std::vector<Json>& lines) {
    std::vector<Json> all;
    for (const Json& line : lines)
        if (line.contains("token_ids")) all.push_back(line["token_ids"]);
    return all;
}

TEST_F(RandomWeights, NeedNoFileAndAreThoseOfTheSeed) {
    const auto one = token_ids(texts({"--random-weights", "3"}));
    ASSERT_EQ(one.size(), 2u);
    EXPECT_NE(one, token_ids(texts({"--random-weights", "4"})));
    EXPECT_EQ(one, token_ids(texts({"--random-weights", "3"}, 2)));
    EXPECT_EQ(one, token_ids(texts({"--random-weights", "3"}, 4)));
    const auto drafted = texts({"--random-weights", "3", "--draft", target});
    EXPECT_EQ(one, token_ids(drafted));
    for (const Json& line : drafted)
        EXPECT_EQ(line["stats"]["accepted"], line["stats"]["drafted"]) << "its own draft";
    const auto without = test::run({"generate", "--target", target, "--prompt", "p"});
    EXPECT_NE(without.code, 0);
    EXPECT_NE(without.err.find("model.safetensors"), std::string::npos) << without.err;
}

TEST_F(RandomWeights, AreTimedAtSeveralContextsAndNamedInTheResult) {
    const test::Ended ended =
        test::run({"bench", "latency", "--target", target, "--draft", target, "--random-weights", "3", "--context",
                   "9,2", "--rows", "2", "--repetitions", "3", "--shards", "2", "--threads", "1", "--json"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json shown = Json::parse(ended.out);
    EXPECT_EQ(shown["environment"]["random_weights"], 3);
    EXPECT_EQ(shown["context"], 9);
    ASSERT_EQ(shown["contexts"].size(), 2u);
    EXPECT_EQ(shown["contexts"][0]["context"], 9);
    EXPECT_EQ(shown["contexts"][1]["context"], 2);
    EXPECT_EQ(shown["contexts"][0]["target"], shown["target"]);
    EXPECT_EQ(shown["t_target_ms"][1], shown["target"][1]["median_ms"]);
    EXPECT_NE(shown["contexts"][1]["target"], shown["target"]);
    EXPECT_EQ(shown["shards"].size(), 1u);
    const auto long_one = test::run(
        {"bench", "latency", "--target", target, "--random-weights", "3", "--context", "9,100000", "--threads", "1"});
    EXPECT_EQ(long_one.code, 2);
    EXPECT_NE(long_one.err.find("--context 100000"), std::string::npos) << long_one.err;
}

} // namespace random_weights_cli_test
