// The binary from outside, for tests: runs it, on one rank or several, and reads what it wrote.
#pragma once

#include "tests/launch/scratch_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace test {

using Json = nlohmann::ordered_json;
using Strings = std::vector<std::string>;

inline const std::string kGolden = ENTRODRAFT_SOURCE_DIR "/tests/model/golden";
inline const std::string kTarget = kGolden + "/llama-target";
inline const std::string kDraft = kGolden + "/llama-draft";

struct Ended {
    int code = -1;
    std::string out;
    std::string err;
};

inline std::string quoted(const std::string& text) {
    std::string result = "'";
    for (char c : text)
        result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

// Without the warning of a busy machine, which depends on what else runs there.
inline std::string without_load(const std::string& text) {
    std::string rest;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        if (line.find(": times are not to be trusted") == std::string::npos) rest += line + (stream.eof() ? "" : "\n");
    return rest;
}

// Runs the binary to its end. `before` goes in front of it ("mpirun -n 2"), `after` behind ("< file"); `out_file`
// takes stdout in place of the result. `err` lacks the warning of a busy machine.
inline Ended run(const Strings& arguments, const std::string& before = "", const std::string& after = "",
                 const std::string& out_file = "") {
    const ScratchFile out(""), err("");
    std::string command = "timeout 60 " + before + " " + quoted(ENTRODRAFT_BINARY);
    for (const std::string& argument : arguments)
        command.append(" ").append(quoted(argument));
    command += " " + after + " > " + (out_file.empty() ? out.path() : out_file) + " 2> " + err.path();
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out.text(), without_load(err.text())};
}

inline std::string mpirun(int ranks) {
    const std::string root = geteuid() == 0 ? " --allow-run-as-root" : "";
    return "mpirun --oversubscribe --bind-to none" + root + " -n " + std::to_string(ranks);
}

inline Ended run_ranks(int ranks, const Strings& arguments) {
    return run(arguments, mpirun(ranks));
}

inline Strings operator+(Strings first, const Strings& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

inline std::vector<Json> lines_of(const std::string& text) {
    std::vector<Json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        lines.push_back(Json::parse(line));
    return lines;
}

// Costs of passes of up to 64 rows, as drafts of trees make them.
inline std::string wide_costs_file() {
    Json costs = {{"schema_version", 1}, {"t_draft_ms", 0.1}};
    for (int rows = 0; rows < 64; ++rows)
        costs["t_target_ms"].push_back(1 + 0.02 * rows);
    return costs.dump();
}

// A simulated setting counts what generate has counted.
inline void expect_counts_of(const Ended& generated, const Json& setting) {
    Json sums = Json::object();
    for (const Json& line : lines_of(generated.out))
        for (const char* count : {"new_tokens", "rounds", "drafted", "accepted", "target_passes", "draft_passes"})
            if (line.contains("stats")) sums[count] = sums.value(count, 0) + line["stats"][count].get<int>();
    for (const auto& [name, sum] : sums.items())
        EXPECT_EQ(setting[name], sum) << name;
    EXPECT_EQ(sums.size(), 6U);
}

// What a run promises to repeat: everything but the times.
inline std::vector<Json> without_stats(const std::string& text) {
    std::vector<Json> lines = lines_of(text);
    for (Json& line : lines)
        line.erase("stats");
    return lines;
}

} // namespace test
