// Refusals of the program, and what it says of itself, from outside.
#include "tests/launch/command_line.h"
#include "tests/launch/model_copy.h"
#include "tests/launch/scratch_file.h"

#include <gtest/gtest.h>

namespace refusals_test {

using namespace test;

// One row of the head is spoilt: of a token that no text has.
TEST(Refusals, ALogitThatIsNotANumberEndsEveryKindOfText) {
    const ModelCopy spoilt(kTarget);
    spoilt.spoil_row("lm_head.weight", 300);
    const ScratchFile input("{\"prompt_token_ids\": [5, 6, 7]}\n");
    const Strings target = {"generate",         "--target", spoilt.path(), "--input",   input.path(),
                            "--max-new-tokens", "4",        "--quiet",     "--threads", "1"};
    const std::vector<Strings> ways = {
        {},
        {"--logprobs", "2"},
        {"--num-beams", "2"},
        {"--repetition-penalty", "1.2"},
        {"--temperature", "1"},
        {"--temperature", "1", "--top-p", "0.9"},
        {"--drafter", "ngram"},
        {"--drafter", "random", "--stop-rule", "constant:2"},
        {"--drafter", "random", "--stop-rule", "constant:2", "--temperature", "1", "--acceptance", "rejection"},
        {"--draft", kDraft}};
    for (const Strings& way : ways) {
        const Ended ended = run(target + way);
        EXPECT_NE(ended.code, 0) << (way.empty() ? "greedy" : way.back()) << ended.out;
        EXPECT_NE(ended.err.find("a logit is not a number"), std::string::npos)
            << (way.empty() ? "greedy" : way.back()) << ": " << ended.err;
    }
    EXPECT_NE(run_ranks(2, target).err.find("a logit is not a number"), std::string::npos);
}

TEST(Refusals, OptionsOfSamplingThatNoLineUsesAreSaidAtTheEnd) {
    const ScratchFile greedy("{\"prompt\": \"a b\"}\n"),
        sampled("{\"prompt\": \"a b\"}\n{\"prompt\": \"c\", \"temperature\": 1}\n");
    const auto said_of = [](const ScratchFile& input, const Strings& more) {
        return run(Strings{"generate", "--target", kTarget, "--max-new-tokens", "2", "--input", input.path()} + more)
            .err;
    };
    const std::string warning = "warning: --top-k and --seed have no effect at temperature 0, and no line has another: "
                                "give --temperature T above 0, or leave them out\n";
    EXPECT_NE(said_of(greedy, {"--top-k", "5", "--seed", "3"}).find(warning), std::string::npos);
    EXPECT_EQ(said_of(sampled, {"--top-k", "5", "--seed", "3"}).find("no effect"), std::string::npos);
    EXPECT_EQ(said_of(greedy, {"--temperature", "1", "--top-k", "5"}).find("no effect"), std::string::npos);
    EXPECT_EQ(said_of(greedy, {}).find("no effect"), std::string::npos);
}

TEST(Refusals, AFileAtItsSizeLimitIsAFailedWrite) {
    std::string lines;
    for (int i = 0; i < 40; ++i)
        lines += "{\"text\": \"The ferry left at dawn\"}\n";
    const ScratchFile texts(lines);
    const Ended ended =
        run({"tokenize", "--model", kTarget, "--input", texts.path()}, "sh -c 'ulimit -f 1; exec \"$@\"' sh");
    EXPECT_EQ(ended.code, 1);
    EXPECT_NE(ended.err.find("stdout: cannot be written: File too large"), std::string::npos) << ended.err;
}

// As srun of another PMI sets them: MPI would end the process there.
TEST(Refusals, WhatNeedsNoOtherRankDoesNotStartMpi) {
    const std::string pmi = "env SLURM_NODELIST=x SLURM_JOB_ID=7 PMI_RANK=0";
    const std::vector<Strings> ways = {{"--version"},          {"help"},
                                       {"generate", "--help"}, {"bench", "latency", "-h"},
                                       {"inspect", kTarget},   {"tokenize", "--model", kTarget, "--text", "a"}};
    for (const Strings& way : ways) {
        const Ended ended = run(way, pmi);
        EXPECT_EQ(ended.code, 0) << way.back() << ": " << ended.err;
        EXPECT_FALSE(ended.out.empty()) << way.back();
    }
    const Ended unknown = run({"generat"}, pmi);
    EXPECT_EQ(unknown.code, 2);
    EXPECT_NE(unknown.err.find("did you mean generate?"), std::string::npos) << unknown.err;
}

TEST(RefusalsRanks, OnlyTheFirstRankSaysWhatNeedsNoOther) {
    for (const Strings& way : {Strings{"--version"}, Strings{"tokenize", "--model", kTarget, "--text", "a"}}) {
        const Ended ranks = run_ranks(3, way);
        EXPECT_EQ(ranks.code, 0) << ranks.err;
        EXPECT_EQ(ranks.out, run(way).out);
    }
    const Ended bad = run_ranks(2, {"tokenize", "--model", kTarget, "--txt", "a"});
    EXPECT_EQ(bad.code, 2);
    EXPECT_NE(bad.err.find("unknown option --txt"), std::string::npos) << bad.err;
}

} // namespace refusals_test
