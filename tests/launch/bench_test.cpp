// What the benches print and check, and one small run of each from outside.
#include "launch/io/report.h"
#include "launch/load/environment.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/statistics.h"
#include "tests/launch/command_line.h"
#include "tests/launch/scratch_file.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>

namespace bench_test {

using namespace entrodraft::launch;
using test::ScratchFile;
using test::Strings;
using test::operator+;

const std::string kPair =
    " --target " ENTRODRAFT_SOURCE_DIR "/tests/model/golden/llama-target --draft " ENTRODRAFT_SOURCE_DIR
    "/tests/model/golden/llama-draft --threads 1";

int run(const std::string& arguments, const std::string& out) {
    return std::system(
        ("timeout 120 " ENTRODRAFT_BINARY " bench " + arguments + " > " + out + " 2> /dev/null").c_str());
}

TEST(Bench, QuantilesAreThoseOfTheSortedSamples) {
    std::vector<double> samples;
    for (int i = 100; i >= 0; --i)
        samples.push_back(i);
    const Quantiles quantiles = quantiles_of(samples);
    EXPECT_EQ(quantiles.median, 50);
    EXPECT_EQ(quantiles.p90, 90);
    EXPECT_EQ(quantiles.p99, 99);
    EXPECT_EQ(quantiles.mean, 50);
    EXPECT_NEAR(quantiles.deviation, std::sqrt(101 * 102 / 12.0), 1e-9);
    EXPECT_EQ(quantiles_of({}).median, 0);
    EXPECT_EQ(quantiles_of({3}).deviation, 0);
}

TEST(Bench, TableColumnsAreAsWideAsTheirWidestCell) {
    EXPECT_EQ(format_table({{"a", "long"}, {"wide", "1"}}), "a     long\nwide     1\n");
}

TEST(Bench, OneOfAKindIsNotSeveral) {
    EXPECT_EQ(counted(1, "new token") + ", " + counted(0, "text") + ", " + counted(2, "rank"),
              "1 new token, 0 texts, 2 ranks");
}

TEST(Bench, CostsOfAnotherSettingAreRefused) {
    const Json environment = {{"ranks", 1},         {"threads_per_rank", 2},    {"draft_placement", "colocated"},
                              {"dtype", "float32"}, {"draft_dtype", "float32"}, {"activation_dtype", "int8"}};
    Json costs = {{"environment", environment}};
    const ScratchFile same(costs.dump());
    EXPECT_NO_THROW(require_costs_of(environment, same.path()));
    costs["environment"]["threads_per_rank"] = 4;
    const ScratchFile other(costs.dump()), by_hand("{}");
    EXPECT_THROW(require_costs_of(environment, other.path()), BadOption);
    EXPECT_NO_THROW(require_costs_of(environment, by_hand.path()));
    costs["environment"]["threads_per_rank"] = 2;
    const auto is_refused_with = [&](const char* field, const Json& value) {
        Json changed = costs;
        changed["environment"][field] = value;
        const ScratchFile file(changed.dump());
        try {
            require_costs_of(environment, file.path());
            return false;
        } catch (const BadOption&) {
            return true;
        }
    };
    EXPECT_TRUE(is_refused_with("activation_dtype", "int16"));
    EXPECT_FALSE(is_refused_with("activation_dtype", Json())); // of an earlier version
    EXPECT_TRUE(is_refused_with("draft_vocab", 32768));
}

TEST(Bench, LatencyOfSomeRowsAloneLeavesTheOthersUnknown) {
    const ScratchFile latency("");
    ASSERT_EQ(run("latency" + kPair + " --rows 1,4 --repetitions 2 --json", latency.path()), 0);
    const Json measured = Json::parse(latency.text());
    ASSERT_EQ(measured["target"].size(), 2u);
    EXPECT_EQ(measured["target"][1]["rows"], 4);
    ASSERT_EQ(measured["t_target_ms"].size(), 4u);
    EXPECT_TRUE(measured["t_target_ms"][1].is_null());
    EXPECT_TRUE(measured["t_target_ms"][2].is_null());
    EXPECT_EQ(measured["t_target_ms"][3], measured["target"][1]["median_ms"]);
    EXPECT_EQ(WEXITSTATUS(run("latency" + kPair + " --rows 2,4", latency.path())), 2) << "nothing to compare with";
}

// A tree's rows see fewer keys than a chain's; that they are told apart by masks must not cost more than noise.
TEST(Bench, LatencyOfATreeIsThatOfAChainOfAsManyRows) {
    const ScratchFile latency("");
    ASSERT_EQ(run("latency" + kPair + " --rows 1,16,32,64 --tree medusa-63 --context 64 --repetitions 30 --json",
                  latency.path()),
              0);
    const Json measured = Json::parse(latency.text());
    ASSERT_EQ(measured["tree"].size(), 3U);
    for (const Json& tree : measured["tree"]) {
        EXPECT_GT(tree["median_ms"], 0);
        EXPECT_LT(tree["over_chain"], 1.5) << tree["rows"];
    }
    EXPECT_EQ(WEXITSTATUS(run("latency" + kPair + " --tree eagle2", latency.path())), 2) << "it has no shape";
}

TEST(Bench, LatencyWritesCostsThatCompareReads) {
    const ScratchFile costs(""), latency(""), prompts("{\"prompt\": \"The ferry left\"}\n{\"prompt\": \"Marta\"}\n"),
        compare("");
    ASSERT_EQ(run("latency" + kPair + " --rows 3 --repetitions 3 --json --output " + costs.path(), latency.path()), 0);
    const Json measured = Json::parse(latency.text());
    EXPECT_EQ(measured, Json::parse(costs.text()));
    EXPECT_EQ(measured["t_target_ms"].size(), 3u);
    EXPECT_GT(measured["target"][0]["mean_ms"], 0);
    EXPECT_GE(measured["draft"]["deviation_ms"], 0);
    EXPECT_GT(measured["t_draft_ms"].get<double>(), 0);
    EXPECT_GE(measured["machine"]["others_busy_cores"].get<double>(), 0);
    EXPECT_GE(measured["machine"]["spread"].get<double>(), 1);
    ASSERT_EQ(run("compare" + kPair + " --json --max-new-tokens 12 --rules static:1,constant:3 --input " +
                      prompts.path() + " --costs " + costs.path(),
                  compare.path()),
              0);
    const Json result = Json::parse(compare.text());
    EXPECT_TRUE(result["machine"].contains("trusted"));
    ASSERT_EQ(result["temperatures"].size(), 2u);
    const Json& greedy = result["temperatures"][0]["settings"];
    ASSERT_EQ(greedy.size(), 4u); // the last one drafts to the cap, for the oracle
    EXPECT_EQ(greedy[0]["setting"], "plain");
    EXPECT_EQ(greedy[0]["target_passes"], greedy[0]["new_tokens"]);
    EXPECT_EQ(greedy[0]["predicted_speedup"], 1);
    for (const Json& setting : greedy) {
        EXPECT_EQ(setting["texts_different_from_plain"], 0);
        EXPECT_EQ(setting["new_tokens"], greedy[0]["new_tokens"]);
        EXPECT_EQ(setting["ms_of_texts"].size(), 2u);
        EXPECT_NEAR(setting["ms_of_texts"][0].get<double>() + setting["ms_of_texts"][1].get<double>(),
                    setting["ms_per_token"].get<double>() * setting["new_tokens"].get<double>(), 1e-6);
    }
    EXPECT_GT(greedy[2]["drafted"], 0);
    EXPECT_GT(greedy[2]["interval_speedup"][0].get<double>(), 0);
    EXPECT_LE(greedy[2]["interval_speedup"][0].get<double>(), greedy[2]["speedup"].get<double>());
    EXPECT_FALSE(greedy[0].contains("interval_speedup")) << "plain decoding is what it is compared with";
    for (const Json& setting : greedy)
        if (setting["setting"] != "plain") {
            EXPECT_GE(setting["oracle_speedup"].get<double>(), setting["predicted_speedup"].get<double>() * (1 - 1e-9))
                << setting["setting"];
            EXPECT_GE(setting["oracle_speedup"].get<double>(), 1);
        }
    ASSERT_EQ(run("compare" + kPair + " --json --max-new-tokens 24 --rules constant --max-draft-tokens 2 --tree 2,2 " +
                      "--temperatures 0 --input " + prompts.path() + " --costs " + costs.path(),
                  compare.path()),
              0);
    const Json narrow = Json::parse(compare.text());
    EXPECT_LE(narrow["temperatures"][0]["settings"][1]["oracle_speedup"].get<double>(), 3)
        << "tokens a round, whatever plain decoding's and trees' caps are";
}

TEST(Bench, PromptsAreReadBeforeAnythingIsTimed) {
    const test::ScratchFile input("no JSON\n");
    const test::Ended ended = test::run({"bench", "compare", "--target", test::kTarget, "--draft", test::kDraft,
                                         "--input", input.path(), "--costs", "/nowhere/costs.json"});
    EXPECT_EQ(ended.code, 1);
    EXPECT_NE(ended.err.find(input.path() + " line 1: not JSON"), std::string::npos) << ended.err;
}

TEST(Bench, LenientTextMayDifferFromPlainDecoding) {
    const ScratchFile prompts("{\"prompt\": \"The ferry left\"}\n"), compare("");
    ASSERT_EQ(run("compare" + kPair +
                      " --json --max-new-tokens 24 --temperatures 0 --rules constant:3 --acceptances "
                      "rejection:lenience=0.01"
                      " --min-draft-tokens 2 --input " +
                      prompts.path(),
                  compare.path()),
              0);
    const Json result = Json::parse(compare.text()), &drafting = result["temperatures"][0]["settings"][1];
    EXPECT_FALSE(drafting.contains("texts_different_from_plain"));
    EXPECT_GT(drafting["accepted"].get<double>(), 0.9 * drafting["drafted"].get<double>());
}

TEST(Bench, GreedyTextWithLenienceRunsBesideExactTextAndSaysSo) {
    const ScratchFile prompts("{\"prompt\": \"The ferry left\"}\n"), compare(""), text("");
    ASSERT_EQ(run("compare" + kPair +
                      " --max-new-tokens 24 --temperatures 0 --rules constant:3 --acceptances "
                      "gumbel,rejection:lenience=0.01,block --input " +
                      prompts.path() + " --output " + compare.path(),
                  text.path()),
              0);
    const Json settings = Json::parse(compare.text())["temperatures"][0]["settings"];
    ASSERT_EQ(settings.size(), 4u) << "plain, exact, exact to the cap, lenient";
    EXPECT_EQ(settings[1]["setting"], "model, constant:tokens=3");
    EXPECT_EQ(settings[1]["texts_different_from_plain"], 0);
    EXPECT_EQ(settings[3]["setting"], "model, constant:tokens=3, rejection:lenience=0.01");
    EXPECT_FALSE(settings[3].contains("texts_different_from_plain"));
    EXPECT_TRUE(settings[1].contains("share_of_oracle_speedup"));
    EXPECT_FALSE(settings[3].contains("share_of_oracle_speedup")) << "its text is another";
    EXPECT_GT(settings[3]["accepted"].get<double>(), 0.9 * settings[3]["drafted"].get<double>());
    for (const char* words : {"every text that is not lossy equal to plain decoding",
                              "oracle of model, rejection: ", "constant:tokens=3, rejection:lenience=0.01 "})
        EXPECT_NE(text.text().find(words), std::string::npos) << words << "\n" << text.text();
}

TEST(Bench, ComparesDraftersAndAcceptances) {
    const ScratchFile prompts("{\"prompt\": \"The ferry left\"}\n{\"prompt\": \"Marta\"}\n"), compare("");
    const std::string draft = kPair.substr(kPair.find(" --draft"), kPair.find(" --threads") - kPair.find(" --draft"));
    ASSERT_EQ(run("compare" + kPair + draft +
                      " --json --max-new-tokens 12 --temperatures 0,1 --rules static:1/constant:2,expected-gain"
                      " --drafters model,draft2,ngram,ngram+model,random --acceptances block,gumbel,typical --input " +
                      prompts.path(),
                  compare.path()),
              0);
    const Json result = Json::parse(compare.text());
    EXPECT_EQ(result["costs"].size(), 2u) << "of each level of the cascade";
    std::size_t of_gumbel = 0, with_levels = 0;
    for (const Json& setting : result["temperatures"][1]["settings"]) {
        const std::string name = setting["setting"].get<std::string>();
        if (name.find("gumbel") == std::string::npos) continue;
        ++of_gumbel;
        EXPECT_EQ(setting["texts_different_from_plain"], 0) << name;
        with_levels += setting.contains("levels") ? 1 : 0;
    }
    EXPECT_EQ(of_gumbel, 1u + 5 * 2 + 1) << "one draft alone to the cap, for the oracle";
    EXPECT_EQ(with_levels, 2u * 2); // model and ngram+model
    EXPECT_EQ(result["temperatures"][0]["settings"].size(), 1u + 5 * 2 + 1 + 5 * 2)
        << "greedy: typical apart, else once";
    for (const Json& setting : result["temperatures"][1]["settings"])
        EXPECT_EQ(setting.contains("oracle_speedup"), setting["setting"].get<std::string>().starts_with("draft2, ") &&
                                                          setting["setting"].get<std::string>().ends_with("gumbel"))
            << setting["setting"];
}

// Drafts to the cap: every position is verified once, except those behind drafts that are accepted whole.
TEST(Bench, AlphaOfAnyDrafterIsKnownWithItsInterval) {
    const ScratchFile prompts("{\"prompt\": \"The ferry left\"}\n{\"prompt\": \"Marta\"}\n{\"prompt\": \"A\"}\n");
    const ScratchFile text("The ferry left. Marta saw the ferry. A man left."), table("");
    ASSERT_EQ(
        test::run({"build-table", "--model", test::kTarget, "--input", text.path(), "--output", table.path()}).code, 0);
    const test::Ended ended = test::run({"bench",
                                         "compare",
                                         "--target",
                                         test::kTarget,
                                         "--draft",
                                         test::kDraft,
                                         "--draft",
                                         test::kTarget,
                                         "--threads",
                                         "1",
                                         "--drafters",
                                         "draft1,draft2,ngram,bigram,unigram",
                                         "--draft-table",
                                         table.path(),
                                         "--rules",
                                         "constant:15",
                                         "--acceptances",
                                         "rejection",
                                         "--temperatures",
                                         "0,1",
                                         "--max-new-tokens",
                                         "24",
                                         "--input",
                                         prompts.path(),
                                         "--json"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json result = Json::parse(ended.out);
    for (const Json& at : result["temperatures"])
        for (const Json& setting : at["settings"]) {
            const std::string name = setting["setting"].get<std::string>();
            if (setting["kind"] != "" || setting["drafted"] == 0) continue;
            SCOPED_TRACE(name);
            const double alpha = setting["iid"]["alpha"].get<double>();
            EXPECT_LE(setting["iid"]["interval_alpha"][0].get<double>(), alpha);
            EXPECT_GE(setting["iid"]["interval_alpha"][1].get<double>(), alpha - 1e-12);
            EXPECT_LE(setting["iid"]["interval_alpha"][1].get<double>(), 1);
            if (name.starts_with("draft2")) {
                EXPECT_NEAR(alpha, 1, 1e-5) << "the target as its own draft";
            }
            if (at["temperature"] != 0) continue;
            double verified = 0, accepted = 0;
            for (const Json& position : setting["by_position"]) {
                verified += position["verified"].get<double>();
                accepted += position["accepted"].get<double>();
            }
            EXPECT_NEAR(alpha, accepted / verified, 1e-12);
        }
}

TEST(BenchShards, AreTimedOnOneRankAndWithinTheHeads) {
    const Strings latency = {"bench", "latency", "--target", test::kTarget, "--threads", "1", "--repetitions", "3"};
    EXPECT_EQ(test::run(latency + Strings{"--shards", "1.5"}).code, 2);
    EXPECT_EQ(test::run(latency + Strings{"--shards", "1000"}).code, 2);
    EXPECT_EQ(test::run_ranks(2, latency + Strings{"--shards", "2"}).code, 2);
    const auto at_once = test::run_ranks(2, {"bench", "latency", "--target", "/no/such", "--shards", "2"});
    EXPECT_NE(at_once.err.find("start one rank, not 2"), std::string::npos)
        << "before a model is read: " << at_once.err;
}

TEST(BenchShards, TheMachineIsWatchedWhileTheyAreTimed) {
    std::string shards = "2";
    for (int i = 1; i < 16; ++i)
        shards += ",2";
    constexpr int kRepetitions = 400;
    const auto ended = test::run({"bench", "latency", "--target", test::kTarget, "--threads", "1", "--rows", "1",
                                  "--repetitions", std::to_string(kRepetitions), "--shards", shards, "--json"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json json = Json::parse(ended.out);
    double least_ms = 0; // half of a shard's passes take its median or more
    for (const Json& shard : json["shards"])
        least_ms += kRepetitions / 2.0 * shard["t_target_without_draft_ms"].get<double>();
    EXPECT_GT(json["machine"]["seconds"].get<double>() * 1e3, least_ms);
}

} // namespace bench_test
