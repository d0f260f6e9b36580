// --head from outside: the demo target's heads over ranks, and what goes with them.
#include "tests/launch/command_line.h"

#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

#include <fstream>

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
            if (ranks == 1) continue;
            const test::Ended dedicated =
                test::run_ranks(ranks, kPrompt + more + Strings{"--draft-placement", "dedicated"});
            ASSERT_EQ(dedicated.code, 0) << dedicated.err;
            EXPECT_EQ(dedicated.out, plain.out) << ranks << " ranks, dedicated, " << more[1];
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
    EXPECT_NE(refused({"--head", head, "--draft-placement", "sharded"}).find("lies on one rank"), std::string::npos);
    EXPECT_NE(refused({"--head", head, "--draft-placement", "dedicated", "--draft-ahead", "2"}).find("needs"),
              std::string::npos);
    EXPECT_NE(refused({"--head", head, "--random-weights", "1"}).find("--random-weights"), std::string::npos);
}

TEST(Heads, ThatAreNoneEndWithALine) {
    const test::Ended ended = test::run(kPrompt + Strings{"--head", kHeads + "/draft"});
    EXPECT_NE(ended.code, 0);
    EXPECT_NE(ended.err.find("not a draft head of a known format"), std::string::npos) << ended.err;
}

TEST(Heads, OfAnotherTargetAreWarnedOf) {
    const entrodraft::TemporaryDirectory work;
    const auto head = work.path() / "medusa";
    std::filesystem::copy(kHeads + "/medusa", head);
    Json config = Json::parse(std::ifstream(head / "config.json"));
    const Strings prompt = {"generate", "--target",    kHeads + "/target", "--prompt", "Once",
                            "--head",   head.string(), "--max-new-tokens", "2",        "--threads",
                            "1"};
    const auto said_of = [&](const Json& name) {
        config["base_model_name_or_path"] = name;
        std::ofstream(head / "config.json") << config;
        const test::Ended ended = test::run(prompt);
        EXPECT_EQ(ended.code, 0) << ended.err;
        return ended.err;
    };
    EXPECT_NE(said_of("someone/Another-7B").find("was trained for \"someone/Another-7B\""), std::string::npos);
    for (const Json& known : {Json("someone/Target"), Json(""), Json()})
        EXPECT_EQ(said_of(known).find("was trained for"), std::string::npos) << known;
    config["vocab_size"] = 7;
    EXPECT_NE(said_of(Json()).find("was trained for a target of 7 tokens"), std::string::npos);
}

TEST(Trees, ChangeNothingWhereKeysAreWeighedByTheirPlaces) { // ALiBi
    const std::string falcon = std::string(ENTRODRAFT_SOURCE_DIR) + "/tests/model/families/falcon-rw/";
    const test::ScratchFile input(R"({"prompt_token_ids": [1, 2]})");
    const Strings generate = {"generate",         "--target", falcon + "target", "--input",     input.path(),
                              "--max-new-tokens", "12",       "--quiet",         "--ignore-eos"};
    const test::Ended plain = test::run(generate);
    const test::Ended tree = test::run(generate + Strings{"--draft", falcon + "draft", "--tree", "2,1"});
    ASSERT_EQ(tree.code, 0) << tree.err;
    EXPECT_EQ(Json::parse(tree.out)["token_ids"], Json::parse(plain.out)["token_ids"]);
    EXPECT_GT(Json::parse(tree.out)["stats"]["drafted"], 0);
}

TEST(Heads, WhoseDraftsDependOnRoundsAreNotRecorded) {
    const std::string heads = std::string(ENTRODRAFT_SOURCE_DIR) + "/tests/model/heads/";
    const test::ScratchFile input(R"({"prompt_token_ids": [1, 2, 3, 4]})");
    const entrodraft::TemporaryDirectory work;
    for (const std::string command : {"record", "tune"}) {
        const test::Ended ended =
            test::run({command, "--target", heads + "target", "--head", heads + "falcon", "--input", input.path(),
                       "--output", (work.path() / "out").string(), "--threads", "1"});
        EXPECT_EQ(ended.code, 2);
        EXPECT_NE(ended.err.find("depends on where rounds begin"), std::string::npos) << ended.err;
    }
}

// ---- heads in the tools ----

const Strings kModels = {"--target", kHeads + "/target", "--threads", "1", "--quiet"};
const std::string kPrompts = R"({"prompt": "The ferry left the island"}
{"prompt": "It was a dark", "max_new_tokens": 20}
{"prompt": "Once"}
{"prompt": "The keeper of the light"})";

TEST(Heads, AreRecordedAndReplayedAsTheyRun) {
    const test::ScratchFile input(kPrompts);
    for (const std::string head : {"eagle3", "medusa"}) {
        const entrodraft::TemporaryDirectory work;
        const std::string costs = (work.path() / "costs.json").string(),
                          recording = (work.path() / "head.edr").string();
        const Strings models = kModels + Strings{"--head", kHeads + "/" + head};
        const test::Ended timed =
            test::run(Strings{"bench", "latency", "--target", kHeads + "/target", "--threads", "1", "--head",
                              kHeads + "/" + head, "--rows", "64", "--repetitions", "2", "--output", costs});
        ASSERT_EQ(timed.code, 0) << timed.err;
        const Json measured = Json::parse(std::ifstream(costs));
        EXPECT_GT(measured["t_draft_ms"], 0);
        EXPECT_EQ(measured["t_target_ms"].size(), 64U);
        const Strings prompts = {"--input", input.path(), "--max-new-tokens", "32"};
        const test::Ended recorded =
            test::run(Strings{"record"} + models + prompts +
                      Strings{"--output", recording, "--costs", costs, "--tree", "expected-gain:3:4"});
        ASSERT_EQ(recorded.code, 0) << recorded.err;
        for (const Strings& rule :
             {Strings{"--rules", "static:1.5", "--stop-rule", "static:threshold=1.5"},
              Strings{"--rules", "expected-gain", "--stop-rule", "expected-gain", "--costs", costs},
              Strings{"--tree", "expected-gain:3:4", "--tree", "expected-gain:3:4", "--costs", costs}}) {
            SCOPED_TRACE(head + " " + rule[1]);
            Strings simulate = {"simulate", "--recording", recording, "--json", rule[0], rule[1]};
            if (rule[0] == "--tree") simulate = simulate + Strings{"--rules", "none"};
            const test::Ended simulated = test::run(simulate);
            ASSERT_EQ(simulated.code, 0) << simulated.err;
            const test::Ended real =
                test::run(Strings{"generate"} + models + prompts + Strings(rule.begin() + 2, rule.end()));
            ASSERT_EQ(real.code, 0) << real.err;
            test::expect_counts_of(real, Json::parse(simulated.out)["settings"][1]);
        }
        const test::Ended ahead = test::run({"simulate", "--recording", recording, "--draft-placement", "dedicated"});
        EXPECT_NE(ahead.err.find("reads the target's states"), std::string::npos) << ahead.err;
    }
}

TEST(Heads, AreTunedAndCompared) {
    const test::ScratchFile input(kPrompts), costs(test::wide_costs_file());
    const entrodraft::TemporaryDirectory work;
    const std::string best = (work.path() / "best.conf").string();
    const Strings models =
        kModels + Strings{"--head", kHeads + "/medusa", "--input", input.path(), "--costs", costs.path()};
    const test::Ended tuned =
        test::run(Strings{"tune"} + models +
                  Strings{"--max-new-tokens", "16", "--repetitions", "1", "--tree", "2,1", "--output", best});
    ASSERT_EQ(tuned.code, 0) << tuned.err;
    const test::Ended again = test::run(kPrompt + Strings{"--head", kHeads + "/medusa", "--config", best});
    EXPECT_EQ(again.code, 0) << again.err;
    const test::Ended timed = test::run_ranks(2, {"bench", "latency", "--target", kHeads + "/target", "--threads", "1",
                                                  "--head", kHeads + "/medusa", "--draft-placement", "dedicated",
                                                  "--rows", "4", "--repetitions", "2", "--json"});
    EXPECT_EQ(timed.code, 0) << timed.err;
    const test::Ended compared = test::run(
        Strings{"bench", "compare"} + models +
        Strings{"--max-new-tokens", "16", "--rules", "static", "--tree", "2,1", "--temperatures", "0", "--json"});
    ASSERT_EQ(compared.code, 0) << compared.err;
    EXPECT_NE(compared.out.find("\"head tree 2,1"), std::string::npos) << compared.out;
}

} // namespace heads_cli_test
