// --replicas from outside, on the golden pair: the same file as one replica writes, and one end for all of them.
#include "tests/launch/command_line.h"
#include "tests/launch/scratch_file.h"
#include "tests/model/temporary_directory.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace replicas_test {

using namespace test;

const Strings kPair = {"generate", "--target", kTarget, "--draft", kDraft, "--dtype", "float32"};

// Prompts of many lengths of text, with some lines that cannot be served.
std::string mixed_lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
        text += i % 9 == 4 ? "broken\n"
                           : "{\"id\": " + std::to_string(i) + ", \"prompt\": \"The ferry left " + std::to_string(i) +
                                 "\", \"max_new_tokens\": " + std::to_string(2 + i * 7 % 30) + "}\n";
    return text;
}

TEST(Replicas, WriteWhatOneWrites) {
    const ScratchFile input(mixed_lines(30));
    const Strings arguments = kPair + Strings{"--input", input.path(), "--threads", "1"};
    const auto one = without_stats(run(arguments).out);
    ASSERT_EQ(one.size(), 30u);
    for (const auto& [ranks, replicas] : {std::pair{2, "2"}, std::pair{4, "2"}, std::pair{3, "3"}}) {
        const Ended several = run_ranks(ranks, arguments + Strings{"--replicas", replicas, "--check", "--verbose"});
        EXPECT_EQ(several.code, 3) << several.err;
        EXPECT_EQ(without_stats(several.out), one) << ranks << " ranks";
        EXPECT_NE(several.err.find("27 prompts (3 failed"), std::string::npos) << several.err;
        EXPECT_NE(several.err.find("check: 27 of 27 texts equal"), std::string::npos) << several.err;
        EXPECT_NE(several.err.find("  replicas   " + std::string(replicas) + ", busy "), std::string::npos)
            << several.err;
    }
}

// Room for the messages of the world and then for those of either replica, but not for those of both.
TEST(Replicas, LookTogetherWhetherTheirSharedMemorySuffices) {
    const std::string little = "unshare -m sh -c 'mount -t tmpfs -o size=1000k tmpfs /dev/shm && exec \"$@\"' sh ";
    if (std::system((little + "true 2> /dev/null").c_str()) != 0) GTEST_SKIP() << "needs the right to mount";
    const ScratchFile input(mixed_lines(9));
    const Strings arguments = kPair + Strings{"--input", input.path(), "--threads", "1"};
    const Ended ended = run(arguments + Strings{"--replicas", "2"}, little + mpirun(4));
    EXPECT_EQ(ended.code, 3) << ended.err;
    EXPECT_EQ(without_stats(ended.out), without_stats(run(arguments).out));
    const std::string mark = " KiB free, and its ranks want ";
    const std::size_t at = ended.err.find(mark);
    ASSERT_NE(at, std::string::npos) << ended.err;
    EXPECT_GT(std::atoi(ended.err.c_str() + at + mark.size()), 1200) << "of both, as groups and for passes";
}

TEST(Replicas, HaveBatchesOfTheirOwn) {
    const ScratchFile input(mixed_lines(24));
    const Strings arguments = kPair + Strings{"--input", input.path(), "--threads", "1", "--quiet"};
    const auto one = without_stats(run(arguments).out);
    const Ended batches = run_ranks(2, arguments + Strings{"--replicas", "2", "--batch-size", "3", "--check"});
    EXPECT_EQ(batches.code, 3) << batches.err;
    EXPECT_EQ(without_stats(batches.out), one);
}

// Each line comes once the result of the one before is there; the last pause is longer than ranks wait for each other.
TEST(Replicas, ServeTheLinesOfAPipeAsTheyCome) {
    const ScratchFile output(""), err("");
    std::string command = "{ for i in 1 2 3; do echo '{\"prompt\": \"The ferry\", \"max_new_tokens\": 4}'; n=0; "
                          "until [ $(wc -l < " +
                          output.path() +
                          ") = $i ] || [ $n = 200 ]; do sleep 0.1; n=$((n + 1)); done; done; sleep 3; "
                          "[ $n = 200 ] && echo late; } | timeout 60 " +
                          mpirun(2) + " " + quoted(ENTRODRAFT_BINARY);
    for (const std::string& argument : kPair + Strings{"--input", "-", "--output", output.path(), "--replicas", "2",
                                                       "--threads", "1", "--collective-timeout", "2"})
        command += " " + quoted(argument);
    const int status = std::system((command + " 2> " + err.path()).c_str());
    EXPECT_EQ(WEXITSTATUS(status), 0) << err.text(); // 3 where a result came late
    EXPECT_EQ(lines_of(output.text()).size(), 3u);
}

TEST(Replicas, TraceTheRoundsOfAll) {
    const ScratchFile input(mixed_lines(12));
    const entrodraft::TemporaryDirectory directory;
    const std::string trace = (directory.path() / "trace.jsonl").string();
    const Ended ended = run_ranks(
        2, kPair + Strings{"--input", input.path(), "--quiet", "--replicas", "2", "--trace", trace, "--threads", "1"});
    ASSERT_EQ(ended.code, 3) << ended.err;
    std::ifstream file(trace);
    const std::vector<Json> rounds = lines_of({std::istreambuf_iterator<char>(file), {}});
    for (const Json& line : lines_of(ended.out)) {
        if (line.contains("error")) continue;
        const auto of_this =
            std::count_if(rounds.begin(), rounds.end(), [&](const Json& round) { return round["id"] == line["id"]; });
        EXPECT_EQ(of_this, line["stats"]["rounds"].get<int>()) << line["id"];
    }
}

TEST(Replicas, ThatDoNotDivideTheRanksAreRefused) {
    const ScratchFile input(mixed_lines(1));
    const Ended ended = run_ranks(3, kPair + Strings{"--input", input.path(), "--replicas", "2"});
    EXPECT_EQ(ended.code, 2);
    EXPECT_NE(ended.err.find("--replicas 2: 3 ranks cannot be cut into 2 equal groups"), std::string::npos)
        << ended.err;
}

// Runs two replicas of `ranks` ranks in all on a long input, and sends `signal` to a rank once there is output.
struct Interrupted {
    int code = 0;
    std::string out, err;
};
Interrupted signal_to(int ranks, int rank, const std::string& signal, const Strings& more) {
    const ScratchFile input(mixed_lines(5000)), output(""), err("");
    std::string command = "exec 2> " + err.path() + "; timeout 60 " + mpirun(ranks) + " " + quoted(ENTRODRAFT_BINARY);
    for (const std::string& argument : kPair + more +
                                           Strings{"--input", input.path(), "--output", output.path(), "--replicas",
                                                   "2", "--threads", "1", "--max-new-tokens", "50"})
        command += " " + quoted(argument);
    // timeout's child is mpirun, whose children are the ranks in their order.
    command += " & run=$!; while kill -0 $run && ! [ -s " + output.path() + " ]; do sleep 0.05; done; " + "kill -" +
               signal + " $(pgrep -P $(pgrep -P $run) entrodraft | sort -n | sed -n " + std::to_string(rank + 1) +
               "p); wait $run";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), output.text(), err.text()};
}

TEST(Replicas, ASignalToAnyRankStopsThemAll) {
    for (const auto& [ranks, rank] : {std::pair{2, 0}, std::pair{2, 1}, std::pair{4, 3}}) {
        const Interrupted ended = signal_to(ranks, rank, "USR1", {});
        EXPECT_EQ(ended.code, 75) << ended.err;
        EXPECT_NE(ended.err.find("stopped by a signal"), std::string::npos) << ended.err;
        ASSERT_FALSE(ended.out.empty());
        EXPECT_EQ(ended.out.back(), '\n');
        const auto lines = lines_of(ended.out);
        EXPECT_LT(lines.size(), 5000u);
        for (std::size_t i = 0; i < lines.size(); ++i)
            EXPECT_EQ(lines[i].contains("error") ? lines[i]["line"].get<std::size_t>() - 1
                                                 : lines[i]["id"].get<std::size_t>(),
                      i);
    }
}

// A rank that is alone in its replica is missed by nobody but the dispatcher, or, where that itself stops, by the
// others.
TEST(Replicas, ARankThatStopsEndsTheJobWithItsName) {
    for (const int rank : {0, 1}) {
        const Interrupted ended = signal_to(2, rank, "STOP", {"--collective-timeout", "2"});
        EXPECT_EQ(ended.code, 1) << ended.err;
        EXPECT_NE(ended.err.find("replica " + std::to_string(rank) + " (rank " + std::to_string(rank) +
                                 " coordinates it) has given no sign of life for more than 2 s"),
                  std::string::npos)
            << ended.err;
    }
}

} // namespace replicas_test
