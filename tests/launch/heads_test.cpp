// --head from outside: the demo target's heads over ranks, and what goes with them.
#include "tests/launch/command_line.h"

#include <gtest/gtest.h>

namespace heads_cli_test {

using test::Json;
using test::Strings;
using test::operator+;

const std::string kHeads = std::string(ENTRODRAFT_SOURCE_DIR) + "/model/demo";
const Strings kPrompt = {"generate",         "--target", kHeads + "/target", "--prompt",  "It was a dark",
                         "--max-new-tokens", "40",       "--quiet",          "--threads", "1"};

TEST(Heads, DraftThePlainTextOnAnyNumberOfRanks) {
    const test::Ended plain = test::run(kPrompt);
    ASSERT_EQ(plain.code, 0) << plain.err;
    for (const int ranks : {1, 2, 3})
        for (const Strings& more : {Strings{"--head", kHeads + "/eagle3"},
                                    {"--head", kHeads + "/eagle3", "--tree", "expected-gain"},
                                    {"--head", kHeads + "/medusa", "--tree", "medusa-63", "--check"},
                                    {"--head", kHeads + "/medusa", "--drafter", "ngram,head"}}) {
            const test::Ended drafted = test::run_ranks(ranks, kPrompt + more);
            ASSERT_EQ(drafted.code, 0) << drafted.err;
            EXPECT_EQ(drafted.out, plain.out) << ranks << " ranks, " << more[1];
        }
}

TEST(Heads, RefuseWhatDoesNotGoWithThem) {
    const auto refused = [](const Strings& more) {
        const test::Ended ended = test::run(kPrompt + more);
        EXPECT_EQ(ended.code, 2) << ended.err;
        return ended.err;
    };
    const std::string head = kHeads + "/eagle3";
    EXPECT_NE(refused({"--head", head, "--draft", kHeads + "/draft"}).find("--head and --draft"), std::string::npos);
    EXPECT_NE(refused({"--head", head, "--drafter", "ngram"}).find("add head to the list"), std::string::npos);
    EXPECT_NE(refused({"--drafter", "head"}).find("--drafter head needs --head DIR"), std::string::npos);
    EXPECT_NE(refused({"--head", head, "--device", "cuda"}).find("--head is for CPUs"), std::string::npos);
    EXPECT_NE(refused({"--head", head, "--draft-placement", "dedicated"}).find("colocated"), std::string::npos);
    EXPECT_NE(refused({"--head", head, "--random-weights", "1"}).find("--random-weights"), std::string::npos);
}

TEST(Heads, ThatAreNoneEndWithALine) {
    const test::Ended ended = test::run(kPrompt + Strings{"--head", kHeads + "/draft"});
    EXPECT_NE(ended.code, 0);
    EXPECT_NE(ended.err.find("not a draft head of a known format"), std::string::npos) << ended.err;
}

} // namespace heads_cli_test
