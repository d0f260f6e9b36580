// The command build-corpus from outside: texts, results and earlier corpora in one file, drafts out of it, and what it
// says and leaves alone when it cannot be made.
#include "tests/launch/command_line.h"
#include "tests/model/temporary_directory.h"

#include "model/text/tokenizer/tokenizer.h"
#include "spec/draft/lookup_corpus.h"

#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace build_corpus_test {

using namespace entrodraft;
using nlohmann::json;
using test::Ended;
using test::operator+;
using test::run;
using test::Strings;

const std::string kModel = ENTRODRAFT_SOURCE_DIR "/model/demo/target";

Ended build_corpus(const Strings& arguments) {
    return run(Strings{"build-corpus", "--model", kModel} + arguments);
}

std::vector<spec::TokenId> tokens_in(const std::string& corpus) {
    const auto tokenizer = model::Tokenizer::open(kModel);
    const auto opened = spec::LookupCorpus::open(corpus, tokenizer.size(), tokenizer.fingerprint());
    return {opened->tokens().begin(), opened->tokens().end()};
}

std::string text_of(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
}

TEST(BuildCorpus, JoinsTextsResultsAndEarlierCorpora) {
    const TemporaryDirectory directory;
    const auto tokenizer = model::Tokenizer::open(kModel);
    const std::string text = "The ferry left at nine.\nThe ferry left at ten.\n";
    const std::string input = directory.write("text", text).string();
    const std::string results =
        directory
            .write("results",
                   "{\"id\": 1, \"text\": \"a\", \"token_ids\": [5, 6]}\n\n{\"id\": 2, \"error\": \"too long\"}\n"
                   "{\"id\": 3, \"token_ids\": [5, 6], \"sequences\": [{\"token_ids\": [7]}, {\"token_ids\": []}, "
                   "{\"token_ids\": [8, 9]}]}\n")
            .string();
    const std::string first = directory.path() / "first.corpus", both = directory.path() / "both.corpus";
    const Ended ended = build_corpus({"--results", results, "--output", first});
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(ended.err, first + ": 3 texts, 5 tokens, 104 bytes\n");
    const spec::TokenId end = tokenizer.size();
    EXPECT_EQ(tokens_in(first), (std::vector<spec::TokenId>{5, 6, end, 7, end, 8, 9, end}));
    const Ended joined = build_corpus({"--input", input, "--input", first, "--output", both});
    ASSERT_EQ(joined.code, 0) << joined.err;
    std::vector<spec::TokenId> expected = tokenizer.encode(text, false);
    expected.push_back(end);
    for (const spec::TokenId token : tokens_in(first))
        expected.push_back(token);
    EXPECT_EQ(tokens_in(both), expected);
    EXPECT_EQ(joined.err.find(both + ": 4 texts, "), 0U) << joined.err;
    EXPECT_EQ(build_corpus({"--input", first, "--output", both, "--quiet"}).err, "");
    EXPECT_TRUE(text_of(both) == text_of(first)) << "replaced";
}

TEST(BuildCorpus, LeavesWhatWasThereWhenItFails) {
    const TemporaryDirectory directory;
    const std::string corpus = directory.write("x.corpus", "precious").string();
    const auto refused = [&](const Strings& arguments, int code, const std::string& part) {
        const Ended ended = build_corpus(arguments + Strings{"--output", corpus});
        EXPECT_EQ(ended.code, code) << ended.err;
        EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
        EXPECT_EQ(text_of(corpus), "precious");
    };
    const auto file = [&](const char* name, const std::string& text) { return directory.write(name, text).string(); };
    refused({}, 2, "give --input FILE, --results FILE, or several");
    refused({"--input", file("empty", "")}, 1, "empty: is empty");
    refused({"--input", file("latin", "\xe9")}, 1, "latin: byte 0 is not UTF-8");
    refused({"--input", "/nowhere"}, 1, "/nowhere: cannot be opened");
    refused({"--input", file("cut", "EDCORPS\nxx")}, 1, "is not a corpus");
    refused({"--input", corpus}, 2, "are the same file");
    refused({"--results", file("none", "{\"id\": 1, \"error\": \"x\"}\n")}, 1, "hold no text");
    refused({"--results", file("words", "word\n")}, 1, "words line 1: ");
    refused({"--results", file("chat", "{\"custom_id\": \"a\", \"response\": {}}\n")}, 1, "has no token_ids");
    refused({"--results", file("range", "{\"id\": 1, \"token_ids\": [1, 99999999]}\n")}, 1,
            "range line 1: a token id must be a whole number from 0 to");
    refused({"--results", file("type", "{\"id\": 1, \"token_ids\": 3}\n")}, 1, "token_ids must be a list");
}

// Texts that were generated once are drafted whole the next time, and are the same.
TEST(BuildCorpus, OutputsOfEarlierRunsAreDrafted) {
    const TemporaryDirectory directory;
    const std::string first = directory.path() / "first.jsonl", corpus = directory.path() / "answers.corpus",
                      again = directory.path() / "again.jsonl", text = directory.path() / "text.jsonl";
    const std::string prompts = directory.write("prompts.jsonl", "{\"prompt\": \"The ship\"}\n").string();
    const auto generate = [&](const Strings& drafting, const std::string& output) {
        const Ended ended =
            run(Strings{"generate", "--target", kModel, "--drafter", "suffix", "--stop-rule", "constant:7", "--input",
                        prompts, "--max-new-tokens", "60", "--output", output} +
                drafting);
        EXPECT_EQ(ended.code, 0) << ended.err;
        return json::parse(text_of(output));
    };
    const json alone = generate({}, first);
    ASSERT_EQ(build_corpus({"--results", first, "--output", corpus}).code, 0);
    const json drafted = generate({"--lookup-corpus", corpus}, again);
    EXPECT_EQ(drafted["token_ids"], alone["token_ids"]);
    EXPECT_LT(drafted["stats"]["rounds"], 14) << "8 tokens a round, once the first 2 were found";
    EXPECT_LT(drafted["stats"]["rounds"], alone["stats"]["rounds"]);
    const std::string plain_text = directory.write("plain", alone["text"].get<std::string>()).string();
    EXPECT_LT(generate({"--lookup-corpus", plain_text}, text)["stats"]["rounds"], 20) << "text does as well";
    const Ended other = run({"generate", "--target", ENTRODRAFT_SOURCE_DIR "/tests/model/golden/llama-target",
                             "--drafter", "suffix", "--lookup-corpus", corpus, "--prompt", "x"});
    EXPECT_EQ(other.code, 1);
    EXPECT_NE(other.err.find("made for a vocabulary of"), std::string::npos) << other.err;
    EXPECT_NE(other.err.find("make it again: entrodraft build-corpus"), std::string::npos) << other.err;
}

} // namespace build_corpus_test
