// The command build-table from outside: the table of a text, and what it says and leaves alone when it cannot be made.
#include "tests/launch/scratch_file.h"
#include "tests/model/temporary_directory.h"

#include "launch/cli/options.h"
#include "launch/start/failure.h"
#include "model/text/tokenizer/tokenizer.h"
#include "spec/draft/token_table.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <vector>

namespace build_table_test {

using namespace entrodraft;
using test::ScratchFile;

const std::string kModel = ENTRODRAFT_SOURCE_DIR "/model/demo/target";

struct Ended {
    int code = -1;
    std::string out;
    std::string err;
};

// `arguments` are a line for the shell.
Ended build_table(const std::string& arguments) {
    const ScratchFile out(""), err("");
    const std::string command =
        "timeout 60 '" ENTRODRAFT_BINARY "' build-table " + arguments + " > " + out.path() + " 2> " + err.path();
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out.text(), err.text()};
}

std::string text_of(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
}

void expect_refused(const std::string& arguments, int code, const std::string& part) {
    const Ended ended = build_table(arguments);
    EXPECT_EQ(ended.code, code) << arguments;
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
}

TEST(BuildTable, CountsATextAndReplacesWhatWasThere) {
    const TemporaryDirectory directory;
    const std::string table = directory.write("words.table", "something else").string();
    const std::string text = "The ferry left at nine.\n\nThe ferry left at ten, and \xc3\xa9t\xc3\xa9 came.\n";
    const std::string input = directory.write("text", text).string();
    const Ended ended = build_table("--model " + kModel + " --input " + input + " --output " + table);
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.out, "");
    const auto tokenizer = model::Tokenizer::open(kModel);
    spec::TokenCounter counter(tokenizer.size(), tokenizer.fingerprint());
    counter.add(tokenizer.encode(text, false));
    const spec::TokenCounts counts = counter.take();
    EXPECT_EQ(ended.err, table + ": " + std::to_string(counts.total) + " tokens, " +
                             std::to_string(counts.followers.size()) + " distinct bigrams, " +
                             std::to_string(text_of(table).size()) + " bytes\n");
    const auto opened = spec::TokenTable::open(table, tokenizer.size(), tokenizer.fingerprint());
    const spec::TokenTable expected(counts);
    std::vector<float> row(static_cast<std::size_t>(opened.vocab_size())), expected_row(row.size());
    for (const model::TokenId token : tokenizer.encode(text, false)) {
        opened.row(2, token, row);
        expected.row(2, token, expected_row);
        EXPECT_EQ(row, expected_row);
    }
    const std::string first = text_of(table);
    const Ended quiet = build_table("--quiet --model " + kModel + " --input - --output " + table + " < " + input);
    EXPECT_EQ(quiet.code, 0);
    EXPECT_EQ(quiet.err, "");
    EXPECT_TRUE(text_of(table) == first) << "from stdin as from the file";
}

TEST(BuildTable, LeavesWhatWasThereWhenItFails) {
    const TemporaryDirectory directory;
    const std::string table = directory.write("words.table", "precious").string();
    const std::string empty = directory.write("empty", "").string(),
                      latin = directory.write("latin", "\xe9t\xe9").string();
    const std::string start = "--model " + kModel + " --output " + table + " --input ";
    expect_refused(start + empty, 1, empty + ": is empty");
    expect_refused(start + latin, 1, latin + ": byte 0 is not UTF-8");
    expect_refused(start + "/nowhere/text", 1, "/nowhere/text: cannot be opened");
    expect_refused(start + directory.path().string(), 1, "is a directory");
    expect_refused(start + table, 2, "--output and --input are the same file");
    expect_refused("--model /nowhere --input " + latin + " --output " + table, 2, "--model /nowhere");
    expect_refused("--model " + kModel + " --input " + latin + " --output /nowhere/table", 1, "/nowhere/table: ");
    const std::string pipe = directory.path() / "pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    expect_refused("--model " + kModel + " --input " + latin + " --output " + pipe, 1, "is not a regular file");
    EXPECT_EQ(text_of(table), "precious");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 4);
}

TEST(BuildTable, NamesTheOptionThatIsMissing) {
    const auto refusal = [](const std::vector<std::string>& arguments) -> std::string {
        try {
            launch::options_of<launch::BuildTableOptions>(
                launch::parse_options(launch::groups_of<launch::BuildTableOptions>(), arguments));
        } catch (const launch::BadOption& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_EQ(refusal({"--input", "a", "--output", "b"}).find("--model DIR is missing"), 0u);
    EXPECT_EQ(refusal({"--model", "m", "--output", "b"}).find("--input FILE is missing"), 0u);
    EXPECT_EQ(refusal({"--model", "m", "--input", "a"}).find("--output FILE is missing"), 0u);
    EXPECT_EQ(refusal({"--model", "m", "--input", "a", "--output", "-"}).find("--output -: "), 0u);
    EXPECT_EQ(refusal({"--model", "m", "--input", "-", "--output", "b"}), "accepted");
}

} // namespace build_table_test
