// Several texts of a line from outside: beams and samples.
#include "tests/launch/command_line.h"

#include <gtest/gtest.h>

namespace sequences_test {

using namespace test;

Strings generate(const std::string& input, const Strings& more) {
    return Strings{"generate", "--target", kTarget, "--input", input, "--max-new-tokens", "12", "--quiet"} + more;
}

Json without_stats(Json line) {
    line.erase("stats");
    return line;
}

std::vector<Json> served(const Ended& ended) {
    EXPECT_EQ(ended.code, 0) << ended.err;
    std::vector<Json> lines;
    for (const Json& line : lines_of(ended.out))
        lines.push_back(without_stats(line));
    return lines;
}

TEST(CliBeams, ALineHasTheBestTextsAndADraftChangesNothing) {
    const ScratchFile input(R"({"prompt_token_ids": [5, 9, 30], "num_return_sequences": 3}
{"prompt_token_ids": [7, 7], "num_beams": 2, "length_penalty": 0, "early_stopping": "never"})");
    const Strings plain = generate(input.path(), {"--num-beams", "4"});
    const std::vector<Json> lines = served(run(plain));
    ASSERT_EQ(lines.size(), 2U);
    ASSERT_EQ(lines[0]["sequences"].size(), 3U);
    EXPECT_EQ(lines[1]["sequences"].size(), 1U);
    EXPECT_EQ(lines[0]["token_ids"], lines[0]["sequences"][0]["token_ids"]);
    EXPECT_EQ(lines[0]["text"], lines[0]["sequences"][0]["text"]);
    EXPECT_GE(lines[0]["sequences"][0]["score"], lines[0]["sequences"][1]["score"]);
    EXPECT_NE(lines[0]["sequences"][0]["token_ids"], lines[0]["sequences"][1]["token_ids"]);
    const Strings drafted = plain + Strings{"--draft", kDraft};
    EXPECT_EQ(served(run(drafted + Strings{"--batch-size", "2", "--check"})), lines);
    const std::vector<Json> of_two = served(run_ranks(2, plain));
    for (const Strings& placement : {Strings{}, {"--draft-placement", "sharded"}})
        EXPECT_EQ(served(run_ranks(2, drafted + placement)), of_two);
    EXPECT_EQ(served(run_ranks(2, drafted + Strings{"--draft-placement", "dedicated"})), lines);
}

// What a draft's tree takes for text is what the target's beams have in common, never what was drafted.
TEST(CliBeams, LongTextsOfADraftThatCostsNothingStayWithinTheContext) {
    const std::string demo = ENTRODRAFT_SOURCE_DIR "/model/demo/";
    const ScratchFile input(R"({"prompt_token_ids": [41, 1069, 498, 263], "num_beams": 1}
{"prompt_token_ids": [82, 1084, 277, 3337]})");
    Json costs = {{"schema_version", 1}, {"t_draft_ms", 1e-4}, {"t_target_ms", std::vector<double>(128, 1)}};
    const ScratchFile free(costs.dump());
    const Strings plain = {"generate",         "--target",      demo + "target", "--input",   input.path(),
                           "--max-new-tokens", "100",           "--num-beams",   "4",         "--ignore-eos",
                           "--quiet",          "--max-context", "112",           "--threads", "1"};
    const std::vector<Json> lines = served(run(plain));
    const Ended drafted = run(plain + Strings{"--draft", demo + "draft", "--costs", free.path()});
    EXPECT_EQ(served(drafted), lines);
    for (const Json& line : lines_of(drafted.out)) {
        EXPECT_GT(line["stats"]["accepted"], 20) << line;
        EXPECT_LT(line["stats"]["further_draft_rows"], 100 * 128) << line;
    }
}

TEST(CliBeams, LinesThatAskForOthersAreErrorLines) {
    const ScratchFile input(R"({"prompt_token_ids": [5], "num_beams": 5}
{"prompt_token_ids": [5], "temperature": 1}
{"prompt_token_ids": [5], "num_return_sequences": 5}
{"prompt_token_ids": [5], "early_stopping": 1}
{"prompt_token_ids": [5], "num_samples": 2}
{"prompt_token_ids": [5], "stop": "x"})");
    const Ended ended = run(generate(input.path(), {"--num-beams", "4"}));
    const std::vector<Json> lines = lines_of(ended.out);
    ASSERT_EQ(lines.size(), 6U);
    const char* parts[] = {
        "use --num-beams 5",      "temperature must be 0",        "num_return_sequences must be 1 to num_beams",
        "early_stopping must be", "num_samples does not go with", "stop strings do not go with"};
    for (std::size_t i = 0; i < lines.size(); ++i)
        EXPECT_NE(lines[i].value("error", "").find(parts[i]), std::string::npos) << lines[i];
}

TEST(CliSamples, AreTheTextsOfTheLineWithTheSeedsFromItsOwnOn) {
    const ScratchFile input(R"({"id": "a", "prompt_token_ids": [5, 9, 30], "seed": 7})");
    const Strings sampled = generate(input.path(), {"--temperature", "1"});
    const std::vector<Json> lines = served(run(sampled + Strings{"--num-samples", "3"}));
    ASSERT_EQ(lines.size(), 1U);
    ASSERT_EQ(lines[0]["sequences"].size(), 3U);
    for (int i = 0; i < 3; ++i) {
        const ScratchFile one(R"({"id": "a", "prompt_token_ids": [5, 9, 30], "seed": )" + std::to_string(7 + i) + "}");
        const std::vector<Json> alone = served(run(generate(one.path(), {"--temperature", "1"})));
        EXPECT_EQ(lines[0]["sequences"][static_cast<std::size_t>(i)]["token_ids"], alone.at(0)["token_ids"]);
        EXPECT_FALSE(alone.at(0).contains("sequences"));
    }
    EXPECT_EQ(lines[0]["token_ids"], lines[0]["sequences"][0]["token_ids"]);
    const ScratchFile of_line(R"({"prompt_token_ids": [5, 9, 30], "num_samples": 2})");
    EXPECT_EQ(run(generate(of_line.path(), {"--temperature", "1", "--draft", kDraft, "--check"})).code, 0);
    for (const Strings& more : {Strings{"--batch-size", "2"}, {"--draft", kDraft}})
        EXPECT_EQ(served(run(sampled + Strings{"--num-samples", "3"} + more)), lines);
}

TEST(CliLogprobs, AreOfEachTokenBySampleAndByLineAndTheSameWithADraftOnRanks) {
    const ScratchFile input(R"({"id": 1, "prompt_token_ids": [5, 9, 30]}
{"id": 2, "prompt_token_ids": [7, 7], "logprobs": false}
{"id": 3, "prompt_token_ids": [7, 7], "logprobs": 0, "temperature": 1, "num_samples": 2}
{"id": 4, "prompt_token_ids": [7, 7], "logprobs": 21})");
    const Strings plain = generate(input.path(), {"--logprobs", "3"});
    const Ended ended = run(plain);
    EXPECT_EQ(ended.code, 3) << ended.err;
    std::vector<Json> lines;
    for (const Json& line : lines_of(ended.out))
        lines.push_back(without_stats(line));
    ASSERT_EQ(lines.size(), 4U);
    ASSERT_EQ(lines[0]["logprobs"].size(), lines[0]["token_ids"].size());
    const Json& first = lines[0]["logprobs"][0];
    EXPECT_EQ(first["token_id"], lines[0]["token_ids"][0]);
    ASSERT_EQ(first["top_logprobs"].size(), 3U);
    EXPECT_EQ(first["top_logprobs"][0], Json({{"token_id", first["token_id"]}, {"logprob", first["logprob"]}}))
        << "greedy text takes the most likely token";
    EXPECT_FALSE(lines[1].contains("logprobs"));
    ASSERT_EQ(lines[2]["sequences"].size(), 2U);
    for (const Json& sample : lines[2]["sequences"]) {
        EXPECT_EQ(sample["logprobs"].size(), sample["token_ids"].size());
        EXPECT_EQ(sample["logprobs"][0]["token_id"], sample["token_ids"][0]);
        EXPECT_TRUE(sample["logprobs"][0]["top_logprobs"].empty());
    }
    EXPECT_NE(lines[3].value("error", "").find("logprobs must be a whole number from 0 to 20"), std::string::npos);
    const auto lines_with = [&](const Ended& other) {
        std::vector<Json> found;
        for (const Json& line : lines_of(other.out))
            found.push_back(without_stats(line));
        return found;
    };
    EXPECT_EQ(lines_with(run(plain + Strings{"--draft", kDraft, "--tree", "3,2,1", "--batch-size", "2"})), lines);
    EXPECT_EQ(lines_with(run_ranks(2, plain + Strings{"--draft", kDraft, "--draft-placement", "dedicated"})), lines);
    const std::vector<Json> of_two = lines_with(run_ranks(2, plain));
    EXPECT_EQ(lines_with(run_ranks(2, plain + Strings{"--draft", kDraft})), of_two);
    EXPECT_EQ(run({"generate", "--target", kTarget, "--prompt", "a", "--logprobs", "1"}).code, 2);
}

} // namespace sequences_test
