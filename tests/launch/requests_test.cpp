// Input lines: what is served, and what each bad line is told.
#include "entrodraft/launch/generate/requests.h"
#include "entrodraft/launch/json_line.h"
#include "launch/scratch_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace entrodraft;
using namespace entrodraft::launch;

// A tokenizer of one token a byte.
PromptLimits limits() {
    PromptLimits limits;
    limits.encode = [](std::string_view text) { return std::vector<spec::TokenId>(text.begin(), text.end()); };
    limits.vocab_size = 128;
    limits.max_positions = 16;
    return limits;
}

InputItem item_of(const std::string& text, std::int64_t number = 3) {
    Line line;
    line.text = text;
    return parse_request(line, number, RequestDefaults{}, limits());
}

spec::Request served(const std::string& text) {
    const InputItem item = item_of(text);
    if (const auto* bad = std::get_if<BadLine>(&item)) ADD_FAILURE() << bad->error;
    const auto* request = std::get_if<spec::Request>(&item);
    return request == nullptr ? spec::Request{} : *request;
}

std::string error_of(const std::string& text) {
    const InputItem item = item_of(text);
    const auto* bad = std::get_if<BadLine>(&item);
    return bad == nullptr ? "served" : bad->error;
}

std::vector<InputItem> read_all(const std::string& text) {
    const test::ScratchFile file(text);
    RequestReader reader(file.path(), RequestDefaults{}, limits());
    std::vector<InputItem> items;
    while (auto item = reader.next())
        items.push_back(std::move(*item));
    return items;
}

TEST(Requests, TextAndTokenIdsArePrompts) {
    EXPECT_EQ(served(R"({"id": 1, "prompt": "ab"})").prompt, (std::vector<spec::TokenId>{97, 98}));
    EXPECT_EQ(served(R"({"id": 1, "prompt_token_ids": [5, 0, 127]})").prompt, (std::vector<spec::TokenId>{5, 0, 127}));
}

TEST(Requests, AnyJsonIsAnIdAndItsHashTheSequenceKey) {
    const spec::Request request = served(R"({"id": {"b": [1, 2.5, null], "a": "x y"}, "prompt": "p"})");
    EXPECT_EQ(request.id, R"({"b":[1,2.5,null],"a":"x y"})"); // in the order written
    EXPECT_EQ(request.sequence_key, served(R"({"prompt":"q","id":{"b":[1,2.5,null],"a":"x y"}})").sequence_key);
    EXPECT_NE(request.sequence_key, served(R"({"id": 1, "prompt": "p"})").sequence_key);
    EXPECT_EQ(served(R"({"id": null, "prompt": "p"})").id, "null");
}

TEST(Requests, AMissingIdIsTheLinesNumberFromZero) {
    EXPECT_EQ(served(R"({"prompt": "p"})").id, "3");
}

TEST(Requests, LinesOverrideOptions) {
    const auto request = served(R"({"prompt": "p", "max_new_tokens": 9, "temperature": 0.5, "top_k": 4, "top_p": 0.9,
                                    "seed": 18446744073709551615})");
    EXPECT_EQ(request.max_new_tokens, 9);
    EXPECT_EQ(request.sampling.temperature, 0.5);
    EXPECT_EQ(request.sampling.top_k, 4);
    EXPECT_EQ(request.sampling.top_p, 0.9);
    EXPECT_EQ(request.sampling.seed, UINT64_MAX);
}

TEST(Requests, LinesSayWhatIsDoneToTheirLogits) {
    const auto request = served(R"({"prompt": "p", "min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": 0.5,
                                    "frequency_penalty": -0.5, "no_repeat_ngram_size": 3, "min_new_tokens": 4,
                                    "logit_bias": {"7": -2.5, "9": 1}, "banned_tokens": [3, 5]})");
    EXPECT_EQ(request.sampling.min_p, 0.1);
    EXPECT_EQ(request.processing.repetition_penalty, 1.2);
    EXPECT_EQ(request.processing.presence_penalty, 0.5);
    EXPECT_EQ(request.processing.frequency_penalty, -0.5);
    EXPECT_EQ(request.processing.no_repeat_ngram_size, 3);
    EXPECT_EQ(request.processing.min_new_tokens, 4);
    EXPECT_EQ(request.processing.logit_bias, (std::vector<std::pair<spec::TokenId, float>>{{7, -2.5F}, {9, 1.0F}}));
    EXPECT_EQ(request.processing.banned_tokens, (std::vector<spec::TokenId>{3, 5}));
}

TEST(Requests, FieldsOfTheUserAreLeftAlone) {
    EXPECT_EQ(error_of(R"({"prompt": "p", "task_id": "x", "target": 1, "input": [], "output": "s", "speed": 1,
                           "top": 1, "passages": [], "new_tokens": 3, "logits": []})"),
              "served");
}

TEST(Requests, EveryBadLineSaysWhatIsWrong) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {R"(not json)", "not JSON"},
        {R"({"prompt": "p")", "not JSON"},
        {R"({"prompt": "p"} {})", "not JSON"},
        {"{\"prompt\": \"\xff\"}", "not JSON"},
        {R"({"prompt": "\ud800"})", "not JSON"},
        {R"({"prompt": "p", "temperature": 1e999})", "a number is out of range"},
        {R"([1])", "not a JSON object"},
        {R"("text")", "not a JSON object"},
        {R"({"prompt": "a", "prompt": "b"})", "field 'prompt' is given twice"},
        {R"({"id": 1})", "prompt, messages or prompt_token_ids is missing"},
        {R"({"prompt": "p", "prompt_token_ids": [1]})", "both prompt and prompt_token_ids"},
        {R"({"prompt": ""})", "prompt is empty"},
        {R"({"prompt": 5})", "prompt must be a string"},
        {R"({"prompt_token_ids": []})", "prompt_token_ids is empty"},
        {R"({"prompt_token_ids": "1 2"})", "must be an array"},
        {R"({"prompt_token_ids": [1, 128]})", "prompt_token_ids[1] must be a whole number from 0 to 127"},
        {R"({"prompt_token_ids": [-1]})", "prompt_token_ids[0]"},
        {R"({"prompt_token_ids": [1.0]})", "prompt_token_ids[0]"},
        {R"({"prompt_token_ids": ["a"]})", "prompt_token_ids[0]"},
        {R"({"prompt_token_ids": [99999999999999999999]})", "prompt_token_ids[0]"},
        {R"({"prompt": "12345678901234567890"})", "context"},
        {R"({"prompt": "p", "max_new_tokens": 0})", "max_new_tokens"},
        {R"({"prompt": "p", "max_new_tokens": "5"})", "max_new_tokens"},
        {R"({"prompt": "p", "max_new_tokens": 1e3})", "max_new_tokens"},
        {R"({"prompt": "p", "temperature": -1})", "temperature must be 0 (greedy) or"},
        {R"({"prompt": "p", "temperature": "hot"})", "temperature must be a number"},
        {R"({"prompt": "p", "top_k": -1})", "top_k"},
        {R"({"prompt": "p", "top_p": 2})", "top_p must be a number from 0 to 1"},
        {R"({"prompt": "p", "seed": -1})", "seed"},
        {R"({"prompt": "p", "min_p": 2})", "min_p must be a number from 0"},
        {R"({"prompt": "p", "repetition_penalty": 0})", "repetition_penalty must be a number from 0.001"},
        {R"({"prompt": "p", "presence_penalty": 3})", "presence_penalty must be a number from -2 to 2"},
        {R"({"prompt": "p", "logit_bias": [1]})", "logit_bias must be an object"},
        {R"({"prompt": "p", "logit_bias": {"x": 1}})", "token id in logit_bias"},
        {R"({"prompt": "p", "logit_bias": {"5": "x"}})", "logit_bias[\"5\"] must be a number"},
        {R"({"prompt": "p", "logit_bias": {"128": 1}})", "logit_bias names token 128, which is outside"},
        {R"({"prompt": "p", "banned_tokens": 5})", "banned_tokens must be an array"},
        {R"({"prompt": "p", "banned_tokens": [128]})", "banned_tokens names token 128"},
        {R"({"prompt": "p", "stop_rule": "static"})", "cannot be set by line; use --stop-rule"},
        {R"({"prompt": "p", "stop": "\n"})", "field stop cannot be set by line; use --stop"},
        {R"({"prompt": "p", "chat": true})", "cannot be set by line; use --chat"},
        {R"({"prompt": "p", "system": "s"})", "cannot be set by line; use --system"},
        {R"({"prompt": "p", "costs": "f"})", "cannot be set by line; use --costs"},
        {R"({"prompt": "p", "ignore-eos": true})", "field ignore-eos cannot be set by line; use --ignore-eos"},
        {R"({"prompt": "p", "max_tokens": 5})", "did you mean max_new_tokens?"},
        {R"({"prompt": "p", "max-new-tokens": 5})", "field max-new-tokens is unknown; did you mean max_new_tokens?"},
        {R"({"prompt": "p", "top-k": 5})", "did you mean top_k?"},
        {R"({"prompt": "p", "topP": 0.5})", "did you mean top_p?"},
        {R"({"prompt": "p", "Temperature": 1})", "did you mean temperature?"},
        {R"({"prompt": "p", "temprature": 1})", "did you mean temperature?"},
    };
    for (const auto& [text, part] : cases) {
        const std::string error = error_of(text);
        EXPECT_NE(error.find(part), std::string::npos) << text << " gave: " << error;
    }
}

TEST(Requests, DeeplyNestedJsonIsRefusedNotFollowed) {
    const std::string deep = std::string(100000, '[') + std::string(100000, ']');
    EXPECT_NE(error_of(R"({"prompt": "p", "id": )" + deep + "}").find("nested deeper than 64"), std::string::npos);
}

TEST(Requests, OnlyUnreadableLinesAreKnownByNumber) {
    const auto unreadable = std::get<BadLine>(item_of("{", 7));
    EXPECT_EQ(unreadable.id, "null");
    EXPECT_EQ(unreadable.line, 7);
    const auto readable = std::get<BadLine>(item_of(R"({"id": "x"})", 7));
    EXPECT_EQ(readable.id, R"("x")");
    EXPECT_FALSE(readable.line.has_value());
}

TEST(Requests, ABadLineDoesNotStopTheOthersAndBlankLinesCount) {
    const auto items = read_all("{\"prompt\":\"a\"}\n\n  \r\nnonsense\n{\"prompt\":\"b\"}"); // no newline at the end
    ASSERT_EQ(items.size(), 3u);
    EXPECT_EQ(id_of(items[0]), "0");
    EXPECT_EQ(std::get<BadLine>(items[1]).line, 3);
    EXPECT_EQ(id_of(items[2]), "4");
    EXPECT_TRUE(std::holds_alternative<spec::Request>(items[2]));
}

TEST(Requests, ARepeatedIdIsABadLineAlsoAfterABadOne) {
    const auto items = read_all("{\"id\":\"a\",\"prompt\":\"p\"}\n{\"prompt\":\"p\",\"id\":\"a\"}\n{\"id\":\"b\"}\n"
                                "{\"id\":\"b\",\"prompt\":\"p\"}\n{\"id\":5,\"prompt\":\"p\"}\n{\"prompt\":\"p\"}\n");
    ASSERT_EQ(items.size(), 6u);
    EXPECT_NE(std::get<BadLine>(items[1]).error.find("used by an earlier line"), std::string::npos);
    EXPECT_NE(std::get<BadLine>(items[3]).error.find("used by an earlier line"), std::string::npos);
    EXPECT_NE(std::get<BadLine>(items[5]).error.find("id 5 was used"), std::string::npos); // its line number
}

// What is said of each item of a piece: its id, and the error if it is a bad line.
std::vector<std::string> words_of_share(const std::string& file, const Share& share) {
    RequestReader reader(file, RequestDefaults{}, limits());
    reader.keep(share);
    std::vector<std::string> words;
    while (auto item = reader.next()) {
        const auto* bad = std::get_if<BadLine>(&*item);
        const std::string line = bad != nullptr && bad->line ? std::to_string(*bad->line) : "";
        words.push_back(id_of(*item) + " " + line + " " + (bad == nullptr ? "" : bad->error));
    }
    if (reader.lines().file_bytes() > 0 && reader.fraction() >= 0) {
        EXPECT_EQ(reader.fraction(), 1.0);
    }
    return words;
}

TEST(Requests, PiecesPutTogetherAreTheWholeFile) {
    const test::ScratchFile file(
        "{\"prompt\":\"a\"}\n{\"id\":\"x\",\"prompt\":\"b\"}\n\nnonsense\n"
        "{\"id\":\"x\",\"prompt\":\"c\"}\n{\"id\":\"y\"}\n{\"prompt\":\"d\"}\n"
        "{\"id\":\"y\",\"prompt\":\"e\"}\n{\"id\":0,\"prompt\":\"f\"}"); // no newline at the end
    const auto whole = words_of_share(file.path(), {0, 1});
    ASSERT_EQ(whole.size(), 8u);
    EXPECT_EQ(whole[2].rfind("null 3 not JSON", 0), 0u) << whole[2];
    for (std::int64_t of : {2, 3, 4, 8, 9, 20}) {
        std::vector<std::string> together;
        std::size_t longest = 0;
        for (std::int64_t i = 0; i < of; ++i) {
            const auto words = words_of_share(file.path(), {i, of});
            longest = std::max(longest, words.size());
            together.insert(together.end(), words.begin(), words.end());
        }
        EXPECT_EQ(together, whole) << of << " pieces";
        EXPECT_LE(longest, static_cast<std::size_t>(9 / of + 1)) << of << " pieces";
    }
}

TEST(Requests, APieceOfNothingIsNothing) {
    const test::ScratchFile empty("");
    EXPECT_TRUE(words_of_share(empty.path(), {1, 3}).empty());
}

TEST(Requests, APieceOfAPipeIsRefused) {
    RequestReader reader("/dev/null", RequestDefaults{}, limits());
    EXPECT_THROW(reader.keep({0, 2}), std::runtime_error);
}

TEST(Requests, PromptOfTheCommandLineHasSequenceKeyZero) {
    const auto request = std::get<spec::Request>(request_of_prompt("ab", RequestDefaults{}, limits()));
    EXPECT_EQ(request.sequence_key, 0u);
    EXPECT_EQ(request.id, "null");
    EXPECT_TRUE(std::holds_alternative<BadLine>(request_of_prompt(std::string(99, 'x'), RequestDefaults{}, limits())));
}

TEST(LineReader, SkipsALineThatIsTooLongAndGoesOn) {
    const test::ScratchFile file("short\n" + std::string(300000, 'x') + "\nafter\n" + std::string(200000, 'y'));
    LineReader reader(file.path(), 1000);
    EXPECT_EQ(reader.next()->text, "short");
    EXPECT_TRUE(reader.next()->too_long);
    EXPECT_EQ(reader.next()->text, "after");
    const auto last = reader.next();
    EXPECT_TRUE(last->too_long);
    EXPECT_FALSE(last->terminated);
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_EQ(reader.bytes_read(), reader.file_bytes());
}

TEST(LineReader, LinesLongerThanItsBufferStayWhole) {
    const std::string text(200000, 'z');
    const test::ScratchFile file(text + "\n" + text);
    LineReader reader(file.path());
    EXPECT_EQ(reader.next()->text, text);
    EXPECT_EQ(reader.next()->text, text);
    EXPECT_FALSE(reader.next().has_value());
}

TEST(LineReader, PatienceGivesUpOnALineThatHasNotComeAndLosesNothingOfIt) {
    using namespace std::chrono_literals;
    const test::ScratchFile place("");
    const std::string path = place.path() + "-pipe";
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    LineReader reader(path, 100); // does not wait for a writer
    reader.set_patience(5ms);
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_TRUE(reader.waiting());
    const int writer = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    const auto send = [&](const std::string& text) {
        EXPECT_EQ(write(writer, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    };
    send("fir");
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_TRUE(reader.waiting());
    send("st\n" + std::string(150, 'x'));
    EXPECT_EQ(reader.next()->text, "first");
    EXPECT_FALSE(reader.next().has_value()); // in the midst of a line that is too long
    EXPECT_TRUE(reader.waiting());
    send("x\nlast\n");
    EXPECT_TRUE(reader.next()->too_long);
    EXPECT_EQ(reader.next()->text, "last");
    close(writer);
    EXPECT_FALSE(reader.next().has_value());
    EXPECT_FALSE(reader.waiting());
    unlink(path.c_str());
}

TEST(LineReader, PatienceEndsWithALineThatNeverDoes) {
    LineReader reader("/dev/zero", 1000);
    reader.set_patience(std::chrono::milliseconds(5));
    for (int i = 0; i < 2; ++i) {
        EXPECT_FALSE(reader.next().has_value());
        EXPECT_TRUE(reader.waiting());
    }
}

TEST(LineReader, NamesAFileThatCannotBeRead) {
    try {
        LineReader("/nonexistent/in.jsonl");
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("/nonexistent/in.jsonl: cannot be opened"), std::string::npos);
    }
    EXPECT_THROW(LineReader("/"), std::runtime_error);
}

} // namespace
