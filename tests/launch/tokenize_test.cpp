// The command tokenize from outside: each kind of tokenizer there and back over JSON lines, line by line, and what it
// says of directories without one.
#include "tests/launch/scratch_file.h"
#include "tests/model/temporary_directory.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <vector>

namespace tokenize_test {

using Json = nlohmann::ordered_json;
using entrodraft::TemporaryDirectory;
using test::ScratchFile;

const std::string kFixtures = ENTRODRAFT_SOURCE_DIR "/tests/model/tokenizers";

struct Ended {
    int code = -1;
    std::string out;
    std::string err;
};

// `arguments` are a line for the shell.
Ended tokenize(const std::string& arguments) {
    const ScratchFile out(""), err("");
    const std::string command =
        "timeout 60 '" ENTRODRAFT_BINARY "' tokenize " + arguments + " > " + out.path() + " 2> " + err.path();
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out.text(), err.text()};
}

Json read(const std::string& file) {
    return Json::parse(std::ifstream(file));
}

std::vector<Json> lines_of(const std::string& text) {
    std::vector<Json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        lines.push_back(Json::parse(line));
    return lines;
}

TEST(Tokenize, GivesTheReferencesIdsAndTextForEachKindOfTokenizer) {
    const Json texts = read(kFixtures + "/strings.json");
    std::string input;
    for (const Json& text : texts)
        input += Json({{"text", text}}).dump() + "\n";
    const ScratchFile there(input);
    for (const std::string family : {"gpt2", "llama2", "t5-new", "gemma"}) {
        const Json expected = read(kFixtures + "/" + family + "/expected.json");
        const std::string model = "--model " + kFixtures + "/" + family;
        const Ended encoded = tokenize(model + " --add-special-tokens --input " + there.path());
        EXPECT_EQ(encoded.code, 0) << encoded.err;
        const auto ids = lines_of(encoded.out);
        ASSERT_EQ(ids.size(), texts.size());
        for (std::size_t i = 0; i < ids.size(); ++i)
            EXPECT_EQ(ids[i], Json({{"id", i + 1}, {"token_ids", expected[i][0]}})) << family << " " << texts[i];
        const ScratchFile back(encoded.out);
        const auto decoded =
            lines_of(tokenize(model + " --decode --skip-special-tokens --input - < " + back.path()).out);
        ASSERT_EQ(decoded.size(), texts.size());
        for (std::size_t i = 0; i < decoded.size(); ++i)
            EXPECT_EQ(decoded[i]["text"], expected[i][1].is_null() ? texts[i] : expected[i][1]) << family;
    }
}

TEST(Tokenize, AnswersALineBeforeTheNextOneComes) {
    const TemporaryDirectory directory;
    const std::string in = (directory.path() / "in").string(), out = (directory.path() / "out").string();
    // The writer sends its second line only once the first one is answered, or gives up after 20 s.
    const std::string script =
        "mkfifo " + in + "; (exec 3> " + in +
        "; echo '{\"text\": \"a\"}' >&3; for i in $(seq 200); do "
        "[ -s " +
        out +
        " ] && echo '{\"text\": \"b\"}' >&3 && break; sleep 0.1; done) & timeout 40 '" ENTRODRAFT_BINARY "' "
        "tokenize --model " +
        kFixtures + "/gpt2 --input - < " + in + " > " + out + "; wait";
    EXPECT_EQ(std::system(script.c_str()), 0);
    EXPECT_EQ(lines_of((std::ostringstream() << std::ifstream(out).rdbuf()).str()).size(), 2U);
}

TEST(Tokenize, SaysWhatALineLacks) {
    const ScratchFile lines("{\"prompt\": \"a\"}\n{\"text\": 1, \"token_ids\": 1}\n");
    const std::string model = "--model " + kFixtures + "/llama2 --input " + lines.path();
    const Ended encoded = tokenize(model), decoded = tokenize(model + " --decode");
    EXPECT_EQ(encoded.code, 3);
    EXPECT_EQ(lines_of(encoded.out).at(0)["error"], "text is missing");
    EXPECT_EQ(lines_of(encoded.out).at(1)["error"], "text must be a string");
    EXPECT_EQ(lines_of(decoded.out).at(0)["error"], "token_ids is missing");
    EXPECT_EQ(lines_of(decoded.out).at(1)["error"], "token_ids must be an array of token ids");
}

TEST(Tokenize, PutsMessagesIntoTheModelsChatTemplate) {
    const TemporaryDirectory directory;
    for (const auto& file : std::filesystem::directory_iterator(kFixtures + "/llama2"))
        std::filesystem::copy(file.path(), directory.path() / file.path().filename());
    directory.write("chat_template.jinja", "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}");
    const ScratchFile lines("{\"messages\": [{\"role\": \"user\", \"content\": \"the the\"}]}\n"
                            "{\"text\": \"[user] the the\"}\n{\"messages\": []}\n");
    const auto out = lines_of(tokenize("--model " + directory.path().string() + " --input " + lines.path()).out);
    EXPECT_EQ(out.at(0)["token_ids"], out.at(1)["token_ids"]);
    EXPECT_NE(out.at(2)["error"].get<std::string>().find("messages"), std::string::npos);
    const auto without = lines_of(tokenize("--model " + kFixtures + "/llama2 --input " + lines.path()).out);
    EXPECT_NE(without.at(0)["error"].get<std::string>().find("has no chat template"), std::string::npos);
}

TEST(Tokenize, PrintsTheIdsOfOneText) {
    const Ended ended = tokenize("--model " + kFixtures + "/llama2 --add-special-tokens --text 'the the'");
    EXPECT_EQ(ended.code, 0);
    const Json ids = Json::parse(ended.out);
    EXPECT_EQ(ids.size(), 3U);
    EXPECT_EQ(ids[0], 1);
    EXPECT_EQ(ended.err, ""); // the table is for terminals
}

TEST(Tokenize, SaysWhatADirectoryLacks) {
    const TemporaryDirectory directory;
    directory.write("tokenizer.model", "x");
    const Ended ended = tokenize("--model " + directory.path().string() + " --text a");
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.out, "");
    EXPECT_NE(ended.err.find("SentencePiece"), std::string::npos) << ended.err;
}

} // namespace tokenize_test
