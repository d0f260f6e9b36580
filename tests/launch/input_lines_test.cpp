// Input lines from outside, on the golden pair: stop strings and data of their own, and models without a tokenizer.
#include "tests/launch/command_line.h"
#include "tests/launch/scratch_file.h"
#include "tests/model/temporary_directory.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

namespace input_lines_test {

using namespace test;
using entrodraft::TemporaryDirectory;
namespace fs = std::filesystem;

// A copy of a golden directory without the files of its tokenizer.
class WithoutTokenizer {
  public:
    explicit WithoutTokenizer(const std::string& original) : path_(directory_.path() / "model") {
        fs::copy(original, path_, fs::copy_options::recursive);
        for (const char* file : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"})
            fs::remove(path_ / file);
    }
    std::string path() const { return path_.string(); }

  private:
    TemporaryDirectory directory_;
    fs::path path_;
};

std::string text_of(const Json& line) {
    return line.value("text", "no text in " + line.dump());
}

TEST(InputLines, EachTextEndsAtTheStopStringsOfItsLine) {
    const Strings pair = {"generate", "--target", kTarget, "--draft", kDraft, "--max-new-tokens", "32", "--quiet"};
    const ScratchFile one(R"({"prompt": "The ferry left"})");
    const auto free = lines_of(run(pair + Strings{"--input", one.path()}).out);
    ASSERT_EQ(free.size(), 1u);
    const std::string text = text_of(free[0]);
    ASSERT_GT(text.size(), 24u);
    const std::string early = text.substr(6, 3), late = text.substr(15, 3);
    std::string lines;
    for (const Json& stop : {Json(early), Json::array({late, "never"}), Json::array(), Json()})
        lines += Json{{"prompt", "The ferry left"}, {"stop", stop}, {"wanted", stop}}.dump() + "\n";
    lines += R"({"prompt": "The ferry left", "stop": 5})";
    const ScratchFile input(lines);
    const Strings served = pair + Strings{"--input", input.path(), "--stop", late};
    const auto check = [&](const std::string& out) {
        const auto results = lines_of(out);
        ASSERT_EQ(results.size(), 5u) << out;
        EXPECT_EQ(text_of(results[0]), text.substr(0, text.find(early)));
        EXPECT_EQ(results[0]["finish_reason"], "stop");
        EXPECT_EQ(results[0]["metadata"]["wanted"], early);
        EXPECT_EQ(text_of(results[1]), text.substr(0, text.find(late)));
        EXPECT_EQ(text_of(results[2]), text) << "none of its own, and the option's are replaced";
        EXPECT_EQ(text_of(results[3]), text_of(results[1])) << "null: the option's";
        EXPECT_EQ(results[4]["error"], "stop must be a string or a list of strings");
    };
    check(run(served + Strings{"--check"}).out);
    check(run(served + Strings{"--batch-size", "3"}).out);
    check(run_ranks(2, served + Strings{"--replicas", "2"}).out);
    const std::string whole = run(served).out;
    const ScratchFile output(whole.substr(0, whole.find('\n') + 1));
    EXPECT_EQ(run(served + Strings{"--output", output.path(), "--resume"}).code, 3);
    check(output.text());
}

TEST(InputLines, AModelWithoutATokenizerServesTokenIds) {
    const WithoutTokenizer target(kTarget), draft(kDraft);
    const ScratchFile input("{\"prompt_token_ids\": [282, 369, 276]}\n{\"prompt\": \"text\"}\n"
                            "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n"
                            "{\"prompt_token_ids\": [282, 369, 276], \"stop\": \"x\"}\n"),
        output("");
    const Strings length = {"--input", input.path(), "--max-new-tokens", "12"};
    const auto with = lines_of(run(Strings{"generate", "--target", kTarget, "--quiet"} + length).out);
    const Ended ended = run(Strings{"generate", "--target", target.path(), "--draft", draft.path()} + length +
                            Strings{"--output", output.path()});
    EXPECT_EQ(ended.code, 3) << ended.err;
    EXPECT_NE(ended.err.find("warning: --draft " + draft.path() + " has no tokenizer: of --target " + target.path() +
                             " and --draft " + draft.path() + " only the vocabulary sizes were compared"),
              std::string::npos)
        << ended.err;
    const auto without = lines_of(output.text());
    ASSERT_EQ(without.size(), 4u);
    EXPECT_EQ(without[0]["token_ids"], with.at(0)["token_ids"]);
    EXPECT_FALSE(without[0].contains("text"));
    EXPECT_EQ(without[1]["error"],
              "prompt cannot be served: the target has no tokenizer; give prompt_token_ids, or add "
              "the tokenizer.json of the model");
    EXPECT_EQ(without[2]["error"].get<std::string>().find("messages cannot be served: the target has no tokenizer"),
              0u);
    EXPECT_EQ(without[3]["error"].get<std::string>().find("stop cannot be served"), 0u);
    const std::string whole = output.text(), first = whole.substr(0, whole.find('\n') + 1);
    const ScratchFile half(first);
    EXPECT_EQ(
        run(Strings{"generate", "--target", target.path(), "--quiet", "--resume", "--output", half.path()} + length)
            .code,
        3);
    EXPECT_EQ(without_stats(half.text()), without_stats(whole));
}

TEST(InputLines, CommandsServeTokenIdsWithoutATokenizer) {
    const WithoutTokenizer target(kTarget), draft(kDraft);
    std::string lines;
    for (const int token : {282, 283, 284})
        lines += Json{{"prompt_token_ids", {token, 369, 276}}}.dump() + "\n";
    const ScratchFile input(lines), recording(""), settings("");
    const Strings pair = {"--target", target.path(), "--draft", draft.path(), "--input", input.path(), "--quiet"};
    fs::remove(recording.path());
    fs::remove(settings.path());
    const Ended recorded =
        run(Strings{"record"} + pair + Strings{"--output", recording.path(), "--max-new-tokens", "8"});
    EXPECT_EQ(recorded.code, 0) << recorded.err;
    EXPECT_EQ(run({"simulate", "--recording", recording.path(), "--rules", "constant"}).code, 0);
    const Ended tuned = run(Strings{"tune"} + pair + Strings{"--output", settings.path(), "--max-new-tokens", "8"});
    EXPECT_EQ(tuned.code, 0) << tuned.err;
    const ScratchFile batch(
        R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": [5]}})");
    const Ended refused = run({"generate", "--target", target.path(), "--input", batch.path(), "--quiet"});
    EXPECT_NE(refused.out.find("responses are text, and the target has no tokenizer"), std::string::npos)
        << refused.out;
    const ScratchFile text("{\"prompt\": \"text\"}\n");
    const Ended no_text = run(Strings{"record", "--target", target.path(), "--draft", draft.path(), "--input",
                                      text.path(), "--output", recording.path() + "x"});
    EXPECT_NE(no_text.code, 0);
    EXPECT_NE(no_text.err.find("the target has no tokenizer"), std::string::npos) << no_text.err;
}

TEST(InputLines, TokenizerModelAloneIsEnoughForText) {
    const WithoutTokenizer target(kTarget), draft(kDraft);
    const fs::path file =
        fs::path(ENTRODRAFT_SOURCE_DIR) / "tests/model/tokenizers/sentencepiece-llama/tokenizer.model";
    for (const WithoutTokenizer* model : {&target, &draft})
        fs::copy_file(file, fs::path(model->path()) / "tokenizer.model");
    const ScratchFile input("{\"prompt\": \"the old\"}\n");
    const Strings command = {"generate", "--target",   target.path(), "--draft",          draft.path(),
                             "--input",  input.path(), "--quiet",     "--max-new-tokens", "12"};
    const Ended ended = run(command);
    EXPECT_EQ(ended.code, 0) << ended.err;
    const Json line = lines_of(ended.out).at(0);
    const ScratchFile ids(Json{{"token_ids", line["token_ids"]}}.dump() + "\n");
    const Ended text =
        run({"tokenize", "--model", target.path(), "--input", ids.path(), "--decode", "--skip-special-tokens"});
    EXPECT_EQ(line["text"], lines_of(text.out).at(0)["text"]);
    EXPECT_EQ(run_ranks(2, command).code, 0) << "all ranks have the same file";
}

TEST(InputLines, AnOptionThatNeedsTextIsRefusedForAModelWithoutATokenizer) {
    const WithoutTokenizer target(kTarget);
    const ScratchFile input("{\"prompt_token_ids\": [282]}\n");
    for (const Strings& more : {Strings{"--prompt", "p"}, Strings{"--stop", "x", "--input", input.path()},
                                Strings{"--chat", "--chat-template", "chatml", "--input", input.path()}}) {
        const Ended ended = run(Strings{"generate", "--target", target.path()} + more);
        EXPECT_EQ(ended.code, 2) << ended.err;
        EXPECT_EQ(ended.err.find("entrodraft: " + more[0] + " needs a tokenizer, and --target " + target.path() +
                                 " has none"),
                  0u)
            << ended.err;
    }
}

TEST(InputLines, AFileOfAChatTemplateThatIsMissingIsNamed) {
    const Ended ended =
        run({"generate", "--target", kTarget, "--chat", "--prompt", "p", "--chat-template", "my.jinja"});
    EXPECT_EQ(ended.code, 2);
    EXPECT_NE(ended.err.find("--chat-template: my.jinja"), std::string::npos) << ended.err;
}

// An enum of more choices than a text may be understood in at once: no fault of the schema's.
TEST(InputLines, ALimitOfConstraintsIsNamedWhereItIsMet) {
    Json schema;
    for (int i = 0; i < 3000; ++i)
        schema["enum"].push_back(i);
    const Json line = {{"prompt", "p"}, {"max_new_tokens", 8}, {"json_schema", schema}};
    const ScratchFile input(line.dump() + "\n");
    const Ended ended = run({"generate", "--target", kTarget, "--input", input.path(), "--quiet"});
    EXPECT_EQ(ended.code, 3);
    EXPECT_NE(ended.out.find("goes against its json_schema; the json_schema met a limit of this program, 2000 ways to "
                             "understand one text: give a simpler one"),
              std::string::npos)
        << ended.out;
}

} // namespace input_lines_test
