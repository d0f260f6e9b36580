// A batch file of OpenAI's API from outside: openai_batch.jsonl, 100 lines, of which those with ids "good-N" are served
// with the texts of input lines that say the same, and all others are answered with status 400.
#include "tests/launch/command_line.h"
#include "tests/launch/prompt_limits.h"

#include <gtest/gtest.h>

#include <fstream>

namespace openai_batch_test {

using namespace test;

const std::string kBatch = ENTRODRAFT_SOURCE_DIR "/tests/launch/openai_batch.jsonl";

Strings serve(const std::string& input, const Strings& more = {}) {
    return Strings{"generate", "--target", kTarget, "--input", input, "--chat-template", "chatml", "--quiet"} + more;
}

std::vector<Json> batch() {
    std::vector<Json> lines;
    std::ifstream file(kBatch);
    for (std::string line; std::getline(file, line);)
        lines.push_back(Json::parse(line, nullptr, false));
    return lines;
}

bool is_good(const Json& line) {
    return line.is_object() && line.contains("custom_id") && line["custom_id"].is_string() &&
           line["custom_id"].get<std::string>().starts_with("good");
}

// The input line that says the same.
Json own_line(const Json& line) {
    const bool is_chat = line["url"] == "/v1/chat/completions";
    Json own = {{"id", line["custom_id"]}, {"temperature", 1}, {"max_new_tokens", is_chat ? 100000 : 16}};
    for (const auto& [name, value] : line["body"].items()) {
        if (value.is_null() || name == "model" || name == "top_logprobs" || name == "user" || name == "metadata")
            continue;
        if (name == "max_tokens" || name == "max_completion_tokens")
            own["max_new_tokens"] = value;
        else if (name == "min_tokens")
            own["min_new_tokens"] = value;
        else if (name == "n")
            own["num_samples"] = value;
        else if (name == "prompt" && value.is_array() && value[0].is_number())
            own["prompt_token_ids"] = value;
        else if (name == "prompt" && value.is_array() && value[0].is_array())
            own["prompt_token_ids"] = value[0];
        else if (name == "prompt" && value.is_array())
            own["prompt"] = value[0];
        else if (name == "logprobs" && is_chat)
            own["logprobs"] = value == true ? Json(line["body"].value("top_logprobs", 0)) : Json(false);
        else if (name == "response_format" && value["type"] == "json_object")
            own["json_schema"] = {{"type", "object"}};
        else if (name == "response_format" && value["type"] == "json_schema")
            own["json_schema"] = value["json_schema"]["schema"];
        else
            own[name] = value;
    }
    return own;
}

std::vector<double> logprobs_of(const Json& result) {
    std::vector<double> values;
    if (result.contains("logprobs"))
        for (const Json& token : result["logprobs"])
            values.push_back(token["logprob"]);
    return values;
}

std::vector<double> logprobs_of_choice(const Json& choice) {
    if (choice["logprobs"].is_null()) return {};
    if (choice["logprobs"].contains("token_logprobs")) return choice["logprobs"]["token_logprobs"];
    std::vector<double> values;
    for (const Json& token : choice["logprobs"]["content"])
        values.push_back(token["logprob"]);
    return values;
}

void expect_same(const Json& line, const Json& body, const Json& own) {
    const bool is_chat = line["url"] == "/v1/chat/completions";
    EXPECT_EQ(body["object"], is_chat ? "chat.completion" : "text_completion");
    EXPECT_EQ(body["model"], line["body"].value("model", kTarget));
    const Json texts = own.contains("sequences") ? own["sequences"] : Json::array({own});
    ASSERT_EQ(body["choices"].size(), texts.size()) << line;
    std::size_t n_new = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const Json& choice = body["choices"][i];
        EXPECT_EQ(choice["index"], i);
        EXPECT_EQ(is_chat ? choice["message"]["content"] : choice["text"], texts[i]["text"]) << line;
        EXPECT_EQ(choice["finish_reason"], texts[i]["finish_reason"] == "length" ? "length" : "stop") << line;
        EXPECT_EQ(logprobs_of_choice(choice), logprobs_of(texts[i])) << line;
        n_new += texts[i]["token_ids"].size();
    }
    const Json& usage = body["usage"];
    EXPECT_EQ(usage["prompt_tokens"], own["stats"]["prompt_tokens"]);
    EXPECT_EQ(usage["completion_tokens"], n_new);
    EXPECT_EQ(usage["total_tokens"], usage["prompt_tokens"].get<std::size_t>() + n_new);
}

std::vector<Json> without_times(const std::string& out) {
    std::vector<Json> lines = lines_of(out);
    for (Json& line : lines)
        line["response"]["body"].erase("created");
    return lines;
}

TEST(OpenAiBatch, LinesAreServedAsInputLinesThatSayTheSameAndMistakesAreAnsweredWith400) {
    const std::vector<Json> lines = batch();
    ASSERT_EQ(lines.size(), 100U);
    const Ended ended = run(serve(kBatch));
    EXPECT_EQ(ended.code, 3) << ended.err;
    const std::vector<Json> results = lines_of(ended.out);
    ASSERT_EQ(results.size(), lines.size());
    std::string own_lines;
    std::vector<std::size_t> good;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const Json& response = results[i]["response"];
        const bool is_repeated = i + 1 == lines.size();
        if (lines[i].is_object() && lines[i].contains("custom_id") && lines[i]["custom_id"].is_string()) {
            EXPECT_EQ(results[i]["custom_id"], lines[i]["custom_id"]);
        } else {
            EXPECT_TRUE(results[i]["custom_id"].is_null()) << results[i];
        }
        if (is_good(lines[i]) && !is_repeated) {
            EXPECT_EQ(response["status_code"], 200) << results[i];
            EXPECT_TRUE(results[i]["error"].is_null());
            good.push_back(i);
            own_lines += own_line(lines[i]).dump() + "\n";
        } else {
            EXPECT_EQ(response["status_code"], 400) << lines[i];
            EXPECT_EQ(results[i]["error"]["message"], response["body"]["error"]["message"]);
            EXPECT_EQ(results[i]["error"]["code"], "invalid_request");
        }
    }
    EXPECT_EQ(good.size(), 68U);
    const ScratchFile own(own_lines);
    const std::vector<Json> expected = lines_of(run(serve(own.path())).out);
    ASSERT_EQ(expected.size(), good.size());
    for (std::size_t i = 0; i < good.size(); ++i)
        expect_same(lines[good[i]], results[good[i]]["response"]["body"], expected[i]);
    EXPECT_EQ(without_times(run(serve(kBatch, {"--draft", kDraft, "--batch-size", "4"})).out),
              without_times(ended.out));
}

TEST(OpenAiBatch, ReplicasAndResumeGiveTheSameFile) {
    const Strings command = serve(kBatch, {"--max-new-tokens", "6", "--temperature", "0.5"});
    const std::vector<Json> whole = without_times(run(command).out);
    EXPECT_EQ(without_times(run_ranks(2, command + Strings{"--replicas", "2"}).out), whole);
    std::string begun;
    const std::string all = run(command).out;
    for (std::size_t at = 0, n = 0; n < 40; ++n, at = all.find('\n', at) + 1)
        begun = all.substr(0, all.find('\n', at) + 1);
    const ScratchFile output(begun + R"({"id":"batch_req_00)"); // torn
    EXPECT_EQ(run(command + Strings{"--output", output.path(), "--resume"}).code, 3);
    EXPECT_EQ(without_times(output.text()), whole);
    std::string pieces;
    for (const char* shard : {"0/3", "1/3", "2/3"})
        pieces += run(command + Strings{"--shard", shard}).out;
    EXPECT_EQ(without_times(pieces), whole);
}

// The words of lines that cannot be served, in the names of bodies.
TEST(OpenAiBatch, MistakesAreNamed) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {R"("prompt": "x", "max_tokens": 0)", "max_tokens must be a whole number from 1"},
        {R"("prompt": "x", "n": 2, "temperature": 0)", "n needs a temperature above 0"},
        {R"("prompt": "x", "stream": true)", "field stream: a result is written once"},
        {R"("prompt": "x", "frobnicate": 1)", "field frobnicate is unknown; leave it out"},
        {R"("prompt": "x", "max_tokens": 3, "max_completion_tokens": 4)", "is given twice, by two names"},
        {R"("prompt": ["a", "b"])", "prompt must be one text or one list of token ids"},
        {R"("messages": [])", "messages is for /v1/chat/completions"},
        {R"("prompt": "x", "store": true)", "field store: results are in the output alone"},
    };
    using namespace entrodraft;
    launch::RequestDefaults defaults;
    defaults.has_results = true;
    for (const auto& [body, why] : cases) {
        launch::Line line;
        line.text = R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {)" + body + "}}";
        const launch::InputItem item = launch::parse_request(line, 1, defaults, limits_of_bytes());
        const auto* bad = std::get_if<launch::BadLine>(&item);
        ASSERT_NE(bad, nullptr) << body;
        EXPECT_TRUE(bad->is_openai);
        EXPECT_NE(bad->error.find(why), std::string::npos) << bad->error;
    }
}

TEST(OpenAiBatch, TheFirstLineOrTheOptionTellsTheFormat) {
    const ScratchFile ours(R"({"id": 1, "prompt": "a", "custom_id": "x"}
{"custom_id": "b", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}})");
    const auto lines = lines_of(run(serve(ours.path(), {"--max-new-tokens", "2"})).out);
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0]["metadata"]["custom_id"], "x");
    EXPECT_NE(lines[1].value("error", "").find("--format openai"), std::string::npos);
    const ScratchFile broken("oops\n");
    EXPECT_EQ(lines_of(run(serve(broken.path(), {"--format", "openai"})).out).at(0)["response"]["status_code"], 400);
    EXPECT_TRUE(lines_of(run(serve(broken.path())).out).at(0)["error"].is_string());
    EXPECT_EQ(run({"generate", "--target", kTarget, "--prompt", "a", "--format", "openai"}).code, 2);
}

} // namespace openai_batch_test
