// What is written is none of what is read, for every command that writes.
#include "launch/cli/command_options.h"
#include "launch/cli/options.h"
#include "launch/start/failure.h"
#include "tests/launch/command_line.h"
#include "tests/model/temporary_directory.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <utility>

namespace output_conflicts_test {

using namespace entrodraft;
using namespace entrodraft::launch;
using test::Strings;
using test::operator+;
namespace fs = std::filesystem;

std::string refusal(const std::vector<OptionGroup>& groups, const Strings& arguments) {
    try {
        refuse_output_conflicts(parse_options(groups, arguments), groups);
    } catch (const BadOption& error) {
        return error.what();
    }
    return "accepted";
}

TEST(OutputConflicts, NoCommandWritesOverWhatItReads) {
    const TemporaryDirectory directory;
    const std::string file = directory.write("file", ""), other = directory.write("other", "");
    const std::pair<const std::vector<OptionGroup>*, Strings> written_and_read[] = {
        {&groups_of<GenerateOptions>(), {"output", "input"}},
        {&groups_of<GenerateOptions>(), {"output", "costs"}},
        {&groups_of<GenerateOptions>(), {"trace", "lookup-corpus"}},
        {&groups_of<GenerateOptions>(), {"timeline", "config"}},
        {&groups_of<RecordOptions>(), {"output", "input"}},
        {&groups_of<RecordOptions>(), {"output", "costs"}},
        {&groups_of<SimulateOptions>(), {"output", "recording"}},
        {&groups_of<SimulateOptions>(), {"trace", "costs"}},
        {&groups_of<TuneOptions>(), {"output", "costs"}},
        {&groups_of<TuneOptions>(), {"report", "costs"}},
        {&groups_of<TuneOptions>(), {"output", "config"}},
        {&groups_of<TuneOptions>(), {"report", "recording"}},
        {&groups_of<BuildTableOptions>(), {"output", "input"}},
        {&groups_of<LatencyOptions>(), {"output", "config"}},
        {&groups_of<CompareOptions>(), {"output", "input"}},
        {&groups_of<CompareOptions>(), {"output", "costs"}},
        {&groups_of<CompareOptions>(), {"output", "draft-table"}},
        {&groups_of<CompareOptions>(), {"output", "lookup-corpus"}},
    };
    for (const auto& [groups, options] : written_and_read) {
        const std::string written = "--" + options[0], read = "--" + options[1];
        EXPECT_EQ(refusal(*groups, {written, file, read, file}),
                  written + " and " + read + " are the same file: " + file);
        EXPECT_EQ(refusal(*groups, {written, file, read, other}), "accepted");
    }
}

TEST(OutputConflicts, GoByTheFileNotByItsName) {
    const TemporaryDirectory directory;
    const std::string file = directory.write("file", ""), link = directory.path() / "link";
    const std::string dotted = directory.path() / "." / "file", hard = directory.path() / "hard";
    fs::create_symlink(file, link);
    fs::create_hard_link(file, hard);
    for (const std::string& name : {link, dotted, hard})
        EXPECT_NE(refusal(groups_of<CompareOptions>(), {"--input", name, "--output", file}), "accepted") << name;
    const std::string is_new = directory.path() / "new", dotted_new = directory.path() / "." / "new";
    EXPECT_NE(refusal(groups_of<GenerateOptions>(), {"--output", is_new, "--trace", dotted_new}), "accepted");
    const std::string pipe = directory.path() / "pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(refusal(groups_of<GenerateOptions>(), {"--output", pipe, "--trace", pipe}), "accepted");
    EXPECT_EQ(refusal(groups_of<GenerateOptions>(), {"--output", "-", "--input", "-"}), "accepted");
}

TEST(OutputConflicts, CountTheFilesOfModels) {
    const TemporaryDirectory directory;
    const std::string model = directory.path(), config = directory.write("config.json", "{}");
    const std::string shard = directory.write("model-00001-of-00002.safetensors", ""),
                      costs = directory.write("costs.json", "");
    for (const std::string& part : {config, shard})
        EXPECT_EQ(refusal(groups_of<LatencyOptions>(),
                          {"--target", "/dev/null/nonexistent", "--draft", model, "--output", part}),
                  "--output " + part + " is a part of --draft " + model + "; name another file");
    EXPECT_NE(refusal(groups_of<BuildTableOptions>(), {"--model", model, "--output", config}), "accepted");
    EXPECT_EQ(refusal(groups_of<LatencyOptions>(), {"--target", model, "--output", costs}), "accepted");
}

TEST(OutputConflicts, CountStandardOutput) {
    const std::string prompts = "{\"prompt\": \"The ferry left\"}\n";
    const test::ScratchFile file(prompts);
    const Strings generate = {"generate", "--target", test::kTarget, "--max-new-tokens", "2", "--input"};
    for (const std::string& read : {file.path(), std::string("-")}) {
        const std::string redirected = "bash -c 'exec \"$0\" \"$@\" < " + file.path() + " >> " + file.path() + "'";
        const test::Ended ended = test::run(generate + Strings{read}, "timeout 10 " + redirected);
        EXPECT_EQ(ended.code, 2) << ended.err;
        EXPECT_NE(ended.err.find("standard output goes to the file of --input"), std::string::npos) << ended.err;
    }
    EXPECT_EQ(file.text(), prompts);
}

TEST(OutputConflicts, FromOutsideTheFileStaysAsItWas) {
    const std::string prompts = "{\"prompt\": \"The ferry left\"}\n";
    const test::ScratchFile file(prompts);
    const Strings pair = {"--target", test::kTarget, "--draft", test::kDraft, "--output", file.path()};
    const test::Ended ended = test::run(Strings{"bench", "compare", "--input", "-"} + pair, "", "< " + file.path());
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_NE(ended.err.find("--output and --input are the same file"), std::string::npos) << ended.err;
    const test::Ended simulated = test::run({"simulate", file.path(), "--output", file.path()});
    EXPECT_EQ(simulated.code, 2) << simulated.err;
    EXPECT_EQ(file.text(), prompts);
}

} // namespace output_conflicts_test
