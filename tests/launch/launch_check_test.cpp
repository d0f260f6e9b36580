// What is wrong with how ranks lie on hosts and cores, and which of them is slow, from made-up facts.
#include "launch/io/summary.h"
#include "launch/load/launch_check.h"

#include <cstring>
#include <gtest/gtest.h>

namespace launch_check_test {

using namespace entrodraft::launch;

RankFacts rank_on(const std::string& host, int first_core, int n_cores, int threads = 1, int host_cores = 8) {
    RankFacts rank;
    std::strncpy(rank.host, host.c_str(), sizeof rank.host - 1);
    for (int core = first_core; core < first_core + n_cores; ++core)
        CPU_SET(static_cast<std::size_t>(core), &rank.cores);
    rank.host_cores = host_cores;
    rank.threads = threads;
    return rank;
}

// The only finding, or what there is instead.
std::string only(const std::vector<RankFacts>& ranks, bool is_error) {
    const auto findings = findings_of(ranks);
    if (findings.size() != 1) return std::to_string(findings.size()) + " findings";
    EXPECT_EQ(findings[0].is_error, is_error);
    return findings[0].text;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(LaunchCheck, FindsNothingWhereEachRankHasItsCores) {
    EXPECT_TRUE(findings_of({rank_on("n1", 0, 1), rank_on("n1", 1, 1), rank_on("n2", 0, 1)}).empty());
    EXPECT_TRUE(findings_of({rank_on("n1", 0, 8, 4), rank_on("n1", 0, 8, 4)}).empty()) << "unbound";
    EXPECT_TRUE(findings_of({rank_on("n1", 0, 8, 8)}).empty());
}

TEST(LaunchCheck, WarnsOfMoreRanksThanCores) {
    const RankFacts rank = rank_on("n1", 0, 2, 1, 2);
    const std::string text = only({rank, rank, rank}, false);
    EXPECT_TRUE(contains(text, "host n1: 3 ranks share 2 cores")) << text;
}

TEST(LaunchCheck, WarnsOfRanksBoundToOneCoreWithTheOptionThatMendsIt) {
    const std::string text = only({rank_on("n1", 3, 1), rank_on("n1", 3, 1)}, false);
    EXPECT_TRUE(contains(text, "host n1: 2 ranks are bound to 1 core (3) of 8")) << text;
    EXPECT_TRUE(contains(text, "--bind-to none")) << text;
    EXPECT_TRUE(findings_of({rank_on("n1", 3, 1), rank_on("n2", 3, 1)}).empty()) << "of two hosts";
}

TEST(LaunchCheck, WarnsOfMoreThreadsThanCores) {
    const std::string bound = only({rank_on("n1", 0, 1, 4), rank_on("n1", 1, 1, 1)}, false);
    EXPECT_TRUE(contains(bound, "4 threads but are bound to 1 core (0) of 8")) << bound;
    EXPECT_TRUE(contains(bound, "slot:PE=4")) << bound;
    const std::string unbound = only({rank_on("n1", 0, 8, 8), rank_on("n1", 0, 8, 8)}, false);
    EXPECT_TRUE(contains(unbound, "16 threads share 8 cores: lower --threads to 4")) << unbound;
}

TEST(LaunchCheck, RefusesAnotherBuildAndWarnsOfTooFewGpus) {
    std::vector<RankFacts> ranks = {rank_on("n1", 0, 8), rank_on("n2", 0, 8), rank_on("n3", 0, 8)};
    ranks[1].build = ranks[2].build = 7;
    const std::string text = only(ranks, true);
    EXPECT_TRUE(contains(text, "rank 1 (host n2) is another build than that of rank 0 (host n1)")) << text;
    ranks = {rank_on("n1", 0, 8), rank_on("n1", 0, 8)};
    ranks[0].gpus = ranks[1].gpus = 1;
    EXPECT_TRUE(contains(only(ranks, false), "2 ranks for 1 GPU")) << only(ranks, false);
    EXPECT_TRUE(contains(only(ranks, false), "--gpus-per-node without --gpus-per-task")) << only(ranks, false);
}

TEST(LaunchCheck, NamesSharedMemoryThatIsTooSmallAndItsRemedy) {
    std::vector<RankFacts> ranks = {rank_on("n1", 0, 8), rank_on("n1", 0, 8)};
    for (RankFacts& rank : ranks) {
        rank.shared_memory_free = 65536;
        rank.shared_memory_wanted = 1 << 20;
    }
    const std::string text = only(ranks, false);
    EXPECT_TRUE(contains(text, "host n1: /dev/shm has 64 KiB free, and its ranks want 1024 KiB")) << text;
    EXPECT_TRUE(contains(text, "--shm-size")) << text;
}

TEST(LaunchCheck, WritesCoresAsRanges) {
    cpu_set_t cores = {};
    EXPECT_EQ(describe(cores), "");
    for (const std::size_t core : {0U, 1U, 2U, 5U, 7U, 8U})
        CPU_SET(core, &cores);
    EXPECT_EQ(describe(cores), "0-2,5,7-8");
}

RankWait waited(int replica, double seconds) {
    return {"n1", replica, seconds, 10};
}

TEST(SlowestRank, IsTheOneThatWaitedLeastWhereItMatters) {
    EXPECT_EQ(describe_slowest({waited(0, 3.2), waited(0, 3.4), waited(0, 0.2)}),
              "rank 2 (host n1): the others waited 31 % of the time for it");
    EXPECT_EQ(describe_slowest({waited(0, 1.2), waited(0, 0.5)}), "") << "a twentieth of the time";
    EXPECT_EQ(describe_slowest({waited(0, 5)}), "");
    EXPECT_EQ(describe_slowest({}), "");
}

TEST(SlowestRank, IsLookedForWithinEachReplica) {
    EXPECT_EQ(describe_slowest({waited(0, 4), waited(0, 4), waited(1, 0), waited(1, 0)}), "");
    EXPECT_EQ(describe_slowest({waited(0, 0), waited(0, 2), waited(1, 6), waited(1, 1)}),
              "rank 3 (host n1): the others waited 50 % of the time for it");
    EXPECT_EQ(describe_slowest({waited(-1, 0), waited(0, 4), waited(0, 4)}), "") << "a rank that only drafts";
}

} // namespace launch_check_test
