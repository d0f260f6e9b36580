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
    EXPECT_NE(variation_of(rejection + Strings{"--stop-rule", "heuristic", "--heuristic-persistent", "--replicas", "2"})
                  .find("--replicas 1"),
              std::string::npos);
    EXPECT_EQ(variation_of({"--lenience", "0.5"}).find("--acceptance gumbel"), std::string::npos)
        << "lossy stays lossy";
    EXPECT_NE(variation_of({"--lenience", "0.5"}), "") << "greedy with lenience follows the draft too";
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
