// The completion script, asked by bash itself.
#include "launch/command_line.h"
#include "model/temporary_directory.h"

#include <gtest/gtest.h>
#include <sstream>
#include <string>

namespace {

using namespace test;
using entrodraft::TemporaryDirectory;

// What bash offers for the last of these words. The script is run with the command that prints the completion; compopt
// works in a live completion alone.
Strings offered(const std::string& words) {
    static const TemporaryDirectory directory, scripts;
    directory.write("model.jsonl", "");
    const Strings script = {"cd '" + directory.path().string() + "'",
                            "compopt() { :; }",
                            "eval \"$(\"$@\")\"",
                            "COMP_WORDS=(entrodraft " + words + ")",
                            "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))",
                            "_entrodraft entrodraft \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"",
                            "printf '%s\\n' \"${COMPREPLY[@]}\""};
    std::string text;
    for (const std::string& line : script)
        text += line + "\n";
    const Ended ended = run({"completion", "bash"}, "bash " + scripts.write("ask.sh", text).string());
    EXPECT_EQ(ended.err, "");
    std::istringstream lines(ended.out);
    Strings offers;
    for (std::string line; std::getline(lines, line);)
        if (!line.empty()) offers.push_back(line);
    return offers;
}

TEST(Completion, OffersCommandsThenTheirOptions) {
    EXPECT_EQ(offered("gen"), Strings{"generate"});
    EXPECT_EQ(offered("bench lat"), Strings{"latency"});
    EXPECT_EQ(offered("generate --temp"), Strings{"--temperature"});
    EXPECT_EQ(offered("bench latency --shar"), Strings{"--shards"});
    EXPECT_EQ(offered("simulate --temp"), Strings{});
    EXPECT_EQ(offered("completion ''"), Strings{"bash"});
}

TEST(Completion, OffersWhatAnOptionTakes) {
    EXPECT_EQ(offered("generate --input mod"), Strings{"model.jsonl"});
    EXPECT_EQ(offered("generate --target mod"), Strings{}) << "a directory is wanted";
    EXPECT_EQ(offered("generate --device c"), (Strings{"cpu", "cuda"}));
    EXPECT_EQ(offered("generate --seed 1"), Strings{});
}

} // namespace
