// The same seed, the same text: what promises it, and who is told where it does not hold.
#include "launch/cmd/repeatability.h"

#include "tests/launch/command_line.h"

#include <gtest/gtest.h>
#include <set>

namespace repeatability_test {

using namespace entrodraft::launch;
using test::kDraft;
using test::kTarget;
using test::Strings;
using test::operator+;

std::string variation_of(const Strings& more) {
    return why_text_varies(options_of<GenerateOptions>(
        parse_options(groups_of<GenerateOptions>(), Strings{"--target", "t", "--draft", "d", "--input", "i"} + more)));
}

const Strings kSampledRun = {
    "generate", "--target",         kTarget, "--prompt", "The ferry left", "--temperature", "1", "--seed",
    "3",        "--max-new-tokens", "60"};

TEST(Repeatability, OnlyTextThatTheDraftDecidesByTheClockVaries) {
    const Strings sampled = {"--temperature", "1"}, rejection = {"--temperature", "1", "--acceptance", "rejection"};
    EXPECT_EQ(variation_of({}), "");
    EXPECT_EQ(variation_of(sampled), "");
    EXPECT_EQ(variation_of({"--acceptance", "rejection"})
                  .find("note: the same seed will not repeat the texts of lines "
                        "that set a temperature"),
              0u);
    EXPECT_EQ(variation_of({"--acceptance", "rejection", "--stop-rule", "static"}), "");
    EXPECT_EQ(variation_of(rejection),
              "note: the same seed will not repeat this text: expected-gain uses measured times; to repeat it, use "
              "--acceptance gumbel, or --costs FILE");
    EXPECT_NE(variation_of({"--temperature", "1", "--acceptance", "block"}), "");
    EXPECT_EQ(variation_of(rejection + Strings{"--costs", "f"}), "");
    EXPECT_EQ(variation_of(rejection + Strings{"--stop-rule", "heuristic"}), "");
    EXPECT_NE(variation_of(rejection + Strings{"--costs", "f", "--replicas", "2"}).find("--replicas 1"),
              std::string::npos);
    EXPECT_EQ(variation_of(rejection + Strings{"--stop-rule", "static", "--replicas", "2"}), "");
    EXPECT_NE(variation_of(rejection + Strings{"--stop-rule", "heuristic:persistent", "--replicas", "2"})
                  .find("--replicas 1"),
              std::string::npos);
    EXPECT_EQ(variation_of({"--acceptance", "rejection:lenience=0.5"}).find("--acceptance gumbel"), std::string::npos)
        << "lossy stays lossy";
    EXPECT_NE(variation_of({"--acceptance", "rejection:lenience=0.5"}), "")
        << "greedy with lenience follows the draft too";
    for (const char* acceptance : {"typical", "bild"})
        EXPECT_NE(variation_of({"--acceptance", acceptance}), "");
    const Strings one_level = {"--draft", "e", "--stop-rule", "static", "--stop-rule", "expected-gain"};
    EXPECT_NE(variation_of(rejection + one_level).find("--costs FILE"), std::string::npos) << "of any level";
    EXPECT_EQ(variation_of(rejection + one_level + Strings{"--costs", "f"}), "");
    const Strings ahead = {"--draft-placement", "dedicated"};
    EXPECT_EQ(variation_of(rejection + ahead + Strings{"--stop-rule", "static"}), "");
    EXPECT_NE(variation_of(rejection + ahead + Strings{"--costs", "f"}).find("--draft-ahead 0"), std::string::npos);
    EXPECT_NE(variation_of(rejection + ahead + Strings{"--stop-rule", "static", "--drafter", "ngram,model"}), "");
    EXPECT_EQ(variation_of(rejection + ahead + Strings{"--costs", "f", "--draft-ahead", "0"}), "");
}

TEST(Repeatability, ASeedGivesOneTextWhateverDraftsAndHowMany) {
    std::set<std::string> texts;
    for (const Strings& more :
         {Strings{}, Strings{"--draft", kDraft}, Strings{"--draft", kDraft, "--stop-rule", "constant"},
          Strings{"--drafter", "ngram"}, Strings{"--draft", kDraft, "--draft", kDraft}}) {
        const test::Ended ended = test::run(kSampledRun + more + Strings{"--quiet"});
        ASSERT_EQ(ended.code, 0) << ended.err;
        texts.insert(ended.out);
    }
    for (int ranks : {1, 2})
        for (int run = 0; run < 5; ++run)
            texts.insert(test::run_ranks(ranks, kSampledRun + Strings{"--draft", kDraft, "--quiet"}).out);
    EXPECT_EQ(texts.size(), 1u);
    EXPECT_GT(texts.begin()->size(), 10u);
}

TEST(Repeatability, GuessedTokensSaveDraftPassesAndChangeNoDraft) {
    const auto lines = [](const std::string& guess, const std::string& more) {
        const test::Ended ended =
            test::run({"generate", "--target", kTarget, "--draft", kDraft, "--draft-dtype", "int8", "--drafter",
                       "model:guess=" + guess, "--stop-rule", "constant:tokens=6", "--input", "-", "--max-new-tokens",
                       "60", "--quiet", "--batch-size", more},
                      R"(printf '{"prompt": "The ferry left"}\n{"prompt": "It was"}\n' | )");
        EXPECT_EQ(ended.code, 0) << ended.err;
        return test::lines_of(ended.out);
    };
    for (const char* batch : {"1", "2"}) {
        const std::vector<test::Json> without = lines("off", batch), with = lines("auto", batch);
        ASSERT_EQ(with.size(), 2u);
        for (std::size_t i = 0; i < with.size(); ++i) {
            EXPECT_EQ(with[i]["token_ids"], without[i]["token_ids"]);
            for (const char* count : {"rounds", "drafted", "accepted"})
                EXPECT_EQ(with[i]["stats"][count], without[i]["stats"][count]) << count;
            EXPECT_EQ(without[i]["stats"]["draft_passes"], without[i]["stats"]["drafted"]);
            EXPECT_EQ(without[i]["stats"]["further_draft_rows"], 0);
            EXPECT_LT(with[i]["stats"]["draft_passes"], without[i]["stats"]["draft_passes"]);
            EXPECT_GT(with[i]["stats"]["further_draft_rows"], 0);
        }
    }
}

const char* const kConstrainedLines =
    R"({"id": 0, "prompt": "The ferry left", "json_schema": {"type": "object", "additionalProperties": false, )"
    R"("properties": {"a": {"type": "integer", "minimum": 0, "maximum": 999}, "b": {"enum": ["x", "yz"]}}, )"
    R"("required": ["a", "b"]}})"
    "\n"
    R"({"id": 1, "prompt": "It was", "regex": "(foo|ba[rz]){3,8}"})"
    "\n"
    R"({"id": 2, "prompt": "A", "grammar": "root ::= \"a\"{3,9} [0-9]{1,20} \".\""})"
    "\n"
    R"({"id": 3, "prompt": "The", "json_schema": {"type": "array", "items": {"type": "boolean"}, "maxItems": 7}, )"
    R"("temperature": 1, "seed": 5})"
    "\n"
    R"({"id": 4, "prompt": "The ferry", "regex": "[a-z ]{20,60}", "temperature": 1, "seed": 3})"
    "\n";

TEST(Repeatability, ConstrainedTextsAreThePlainOnesInEveryPlacement) {
    const test::ScratchFile input(kConstrainedLines);
    const Strings arguments = {"generate",   "--target",         kTarget, "--dtype",   "float32", "--input",
                               input.path(), "--max-new-tokens", "40",    "--threads", "1",       "--quiet"};
    const test::Ended plain = test::run(arguments);
    ASSERT_EQ(plain.code, 0) << plain.err;
    const auto expected = test::without_stats(plain.out);
    ASSERT_EQ(expected.size(), 5u);
    EXPECT_EQ(expected[0]["finish_reason"], "eos") << expected[0];
    const Strings draft = {"--draft", kDraft};
    for (const auto& [ranks, more] : std::vector<std::pair<int, Strings>>{
             {2, draft + Strings{"--draft-placement", "dedicated"}},
             {3, draft + Strings{"--draft-placement", "dedicated", "--batch-size", "4"}},
             {2, draft + Strings{"--draft-placement", "sharded"}},
             {2, draft + Strings{"--draft-placement", "sharded", "--tree", "eagle2"}},
             {2, draft + Strings{"--replicas", "2"}},
             {4, draft + Strings{"--replicas", "2", "--draft-placement", "dedicated"}}})
        EXPECT_EQ(test::without_stats(test::run_ranks(ranks, arguments + more).out), expected)
            << ranks << " ranks, " << testing::PrintToString(more);
    const std::size_t second = plain.out.find('\n', plain.out.find('\n') + 1) + 1;
    const test::ScratchFile output(plain.out.substr(0, second));
    const Strings resumed = arguments + draft + Strings{"--output", output.path(), "--resume"};
    EXPECT_EQ(test::run_ranks(2, resumed).code, 0);
    EXPECT_EQ(test::without_stats(output.text()), expected);
}

TEST(Repeatability, AnotherSeedGivesAnotherText) {
    Strings other = kSampledRun + Strings{"--draft", kDraft, "--quiet"};
    other[8] = "4";
    EXPECT_NE(test::run(other).out, test::run(kSampledRun + Strings{"--draft", kDraft, "--quiet"}).out);
}

TEST(Repeatability, TextThatWillNotRepeatIsToldOnceUnlessQuiet) {
    const Strings rejection = kSampledRun + Strings{"--draft", kDraft, "--acceptance", "rejection"};
    const std::string note = "note: the same seed will not repeat this text";
    const std::string told = test::run(rejection).err;
    EXPECT_EQ(told.find(note), 0u) << told;
    EXPECT_EQ(told.find(note, 1), std::string::npos);
    EXPECT_EQ(test::run(rejection + Strings{"--quiet"}).err, "");
    EXPECT_EQ(test::run(rejection + Strings{"--stop-rule", "constant"}).err.find(note), std::string::npos);
    EXPECT_EQ(test::run(kSampledRun + Strings{"--draft", kDraft}).err.find(note), std::string::npos);
}

} // namespace repeatability_test
