// Input lines: what is served, and what each bad line is told.
#include "launch/io/field_names.h"
#include "launch/io/json_line.h"
#include "launch/io/requests.h"
#include "tests/launch/scratch_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace requests_test {

using namespace entrodraft;
using namespace entrodraft::launch;
using Strings = std::vector<std::string>;

// A tokenizer of one token a byte.
PromptLimits limits() {
    PromptLimits limits;
    limits.encode = [](std::string_view text) { return std::vector<spec::TokenId>(text.begin(), text.end()); };
    limits.vocab_size = 128;
    limits.max_positions = 16;
    return limits;
}

InputItem item_of(const std::string& text, const RequestDefaults& defaults = {}, std::int64_t number = 3) {
    Line line;
    line.text = text;
    return parse_request(line, number, defaults, limits());
}

spec::Request served(const std::string& text, const RequestDefaults& defaults = {}) {
    const InputItem item = item_of(text, defaults);
    if (const auto* bad = std::get_if<BadLine>(&item)) ADD_FAILURE() << bad->error;
    const auto* request = std::get_if<spec::Request>(&item);
    return request == nullptr ? spec::Request{} : *request;
}

std::string error_of(const std::string& text, const RequestDefaults& defaults = {}) {
    const InputItem item = item_of(text, defaults);
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

// The names are those that generate declares: none can be forgotten.
TEST(Requests, EveryOptionIsRefusedByNameUnlessALineMaySetIt) {
    int n_refused = 0;
    for (const OptionGroup& group : groups_of<GenerateOptions>())
        for (const OptionSpec& option : group.options) {
            const std::string field = field_of_option(option.name);
            if (field == "prompt") continue;
            if (std::ranges::any_of(line_fields(), [&](const LineField& ours) { return field == ours.name; })) continue;
            const std::string error = error_of(R"({"prompt": "p", ")" + field + R"(": "7"})");
            EXPECT_EQ(error.find("field " + field + " cannot be set by line; use --" + option.name + ", "), 0u)
                << error;
            ++n_refused;
        }
    EXPECT_GT(n_refused, 40);
    EXPECT_EQ(error_of(R"({"prompt": "p", "lenience": 0.5})"),
              "field lenience cannot be set by line; use --acceptance rejection:lenience=L, or put it into metadata if "
              "it is data of your own");
    EXPECT_NE(error_of(R"({"prompt": "p", "entropy_threshold": 2})").find("static:threshold=X"), std::string::npos);
    EXPECT_EQ(served(R"({"prompt": "p", "host": "h"})").metadata, R"({"host":"h"})") << "of other programs alone";
    EXPECT_EQ(served(R"({"prompt": "p", "metadata": {"summary": "s"}})").metadata, R"({"summary":"s"})");
}

TEST(Requests, NullInAnyFieldIsAsIfItWereNotThere) {
    RequestDefaults defaults;
    defaults.has_results = true;
    defaults.logprobs = 3;
    defaults.stop_strings = {"END"};
    const spec::Request absent = served(R"({"prompt": "p"})", defaults);
    Strings names = {"messages", "prompt_token_ids", "tools",  "chat_template_kwargs", "decoder_prompt", "do_sample",
                     "metadata", "response_format",  "stream", "top_logprobs"};
    for (const LineField& field : line_fields())
        names.emplace_back(field.name);
    for (const std::string& name : names) {
        const spec::Request request = served(R"({"prompt": "p", ")" + name + R"(": null})", defaults);
        EXPECT_EQ(request.prompt, absent.prompt) << name;
        EXPECT_EQ(request.metadata, "") << name;
        EXPECT_EQ(request.max_new_tokens, absent.max_new_tokens) << name;
        EXPECT_EQ(request.logprobs, absent.logprobs) << name;
        EXPECT_EQ(request.stop_strings, absent.stop_strings) << name;
        EXPECT_EQ(request.num_samples, 1) << name;
    }
    EXPECT_EQ(served(R"({"prompt": "p", "mine": null, "summary": null})").metadata, R"({"mine":null,"summary":null})");
    EXPECT_EQ(error_of(R"({"prompt": null})"), "prompt, messages or prompt_token_ids is missing");
    EXPECT_EQ(served(R"({"id": null, "prompt": "p", "seed": null})").id, "null");
}

TEST(Requests, TurnsOfSpecBenchAreAnsweredWithWhatToDo) {
    EXPECT_EQ(error_of(R"({"question_id": 81, "category": "writing", "turns": ["a", "b"]})"),
              "prompt, messages or prompt_token_ids is missing; Spec-Bench has prompts in turns, and jq -c '{id: "
              ".question_id, category, prompt: .turns[0]}' FILE takes out the first of each line");
}

TEST(Requests, AnyJsonIsAnIdAndItsHashTheSequenceKey) {
    const spec::Request request = served(R"({"id": {"b": [1, 2.5, null], "a": "x y"}, "prompt": "p"})");
    EXPECT_EQ(request.id, R"({"b":[1,2.5,null],"a":"x y"})"); // in the order written
    EXPECT_EQ(request.sequence_key, served(R"({"prompt":"q","id":{"b":[1,2.5,null],"a":"x y"}})").sequence_key);
    EXPECT_NE(request.sequence_key, served(R"({"id": 1, "prompt": "p"})").sequence_key);
    EXPECT_EQ(served(R"({"id": null, "prompt": "p"})").id, "null");
}

TEST(Requests, AMissingIdIsTheLinesNumber) {
    EXPECT_EQ(served(R"({"prompt": "p"})").id, "3");
}

TEST(Requests, IdsThatADoubleWouldRoundStayAsTheyAreWritten) {
    for (const char* id : {"18446744073709551616", "18446744073709551617", "3.0000000000000001",
                           R"({"a":[12345678901234567890123,{"b":-0.10000000000000000001}],"c":"x"})"})
        EXPECT_EQ(served(std::string(R"({"prompt": "p", "id": )") + id + "}").id, id);
    EXPECT_EQ(served(R"({"id": 1e2, "prompt": "p"})").id, "100.0") << "the same number";
    EXPECT_EQ(served(R"({"id": [1.10, -0.0, 5E-3], "prompt": "p"})").id, "[1.1,-0.0,0.005]");
    EXPECT_NE(served(R"({"id": 18446744073709551616, "prompt": "p"})").sequence_key,
              served(R"({"id": 18446744073709551617, "prompt": "p"})").sequence_key);
}

// Templates see them; a schema has numbers, whatever its properties are called.
TEST(Requests, LargeIntegersKeepTheirDigitsInTheFieldsThatTemplatesReadAlone) {
    const std::string large = "123456789012345678901234567890";
    const std::string fields = R"("tools": [{"a": )" + large + R"(}], "other": {"tools": )" + large + "}";
    for (const bool is_openai : {false, true}) {
        const std::string line = is_openai ? R"({"body": {)" + fields + "}}" : "{" + fields + "}";
        Json object = Json::parse(line);
        keep_large_integers(line, object, {"messages", "tools"});
        const Json& in = is_openai ? object["body"] : object;
        EXPECT_TRUE(in["tools"][0]["a"].is_binary());
        EXPECT_TRUE(in["other"]["tools"].is_number_float());
    }
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

TEST(Requests, LinesNameAStopRuleThatTheRunCanHave) {
    RequestDefaults defaults;
    defaults.stop_rules = {15, spec::Acceptance::rejection};
    EXPECT_EQ(served(R"({"prompt": "p", "stop_rule": "constant:3"})", defaults).stop_rule, "constant:3");
    EXPECT_EQ(served(R"({"prompt": "p", "stop_rule": null})", defaults).stop_rule, "");
    const auto told = [&](const std::string& rule) {
        return error_of(R"({"prompt": "p", "stop_rule": ")" + rule + R"("})", defaults);
    };
    EXPECT_EQ(told("constant:tokens=16"), "stop_rule constant:tokens=16: '16' must be at most --max-draft-tokens 15");
    EXPECT_EQ(told(std::string(201, 'x')), "stop_rule has 201 bytes; the most is 200");
    EXPECT_NE(told("heuristic:5:persistent").find("does not continue from text to text"), std::string::npos);
    EXPECT_NE(told("expected-gain").find("it measures costs"), std::string::npos);
    EXPECT_NE(told("entropy").find("did you mean static?"), std::string::npos);
    EXPECT_NE(told("confidence:drop").find("would bias --acceptance rejection"), std::string::npos);
    EXPECT_EQ(
        error_of(R"({"prompt": "p", "stop_rule": "constant"})"),
        "stop_rule is for runs of generate and serve that draft chains: with a draft, without a tree, lookahead or "
        "beams; leave it out");
    defaults.stop_rules->acceptance = spec::Acceptance::gumbel;
    EXPECT_EQ(served(R"({"prompt": "p", "stop_rule": "expected-gain"})", defaults).stop_rule, "expected-gain");
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

TEST(Requests, FieldsOfTheUserGoToTheMetadata) {
    EXPECT_EQ(served(R"({"prompt": "p", "task_id": "x", "answer": "s", "speed": 1e2, "top": 1, "passages": [],
                         "new_tokens": 3, "logits": [0.5, null]})")
                  .metadata,
              R"({"task_id":"x","answer":"s","speed":100.0,"top":1,"passages":[],"new_tokens":3,"logits":[0.5,null]})");
    EXPECT_EQ(served(R"({"prompt": "p", "metadata": {"b": 1, "a": 12345678901234567890123}, "note": "x"})").metadata,
              R"({"b":1,"a":12345678901234567890123,"note":"x"})");
    EXPECT_EQ(served(R"({"prompt": "p", "metadata": {}})").metadata, "{}");
    EXPECT_EQ(served(R"({"prompt": "p", "metadata": null})").metadata, "");
    EXPECT_EQ(served(R"({"prompt": "p", "n": 1, "stop": "x", "id": 4})").metadata, "") << "ours, or harmless";
    EXPECT_NE(error_of(R"({"prompt": "p", "metadata": {"note": 1}, "note": 2})").find("field note is data of your own"),
              std::string::npos);
    EXPECT_NE(error_of(R"({"prompt": "p", "metadata": "x"})").find("metadata must be an object"), std::string::npos);
}

TEST(Requests, ManyFieldsOfTheUserAreReadInTimeInProportion) {
    std::string line = R"({"prompt": "p")";
    for (int i = 0; i < 5000; ++i)
        line += ", \"own" + std::to_string(i) + "\": 0.5";
    const auto began = std::chrono::steady_clock::now();
    EXPECT_GT(served(line + "}").metadata.size(), 50000U);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5))
        << "not a second in an optimized build";
}

TEST(Requests, WhatOtherServersServeAndThisOneDoesNotIsRefusedByName) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {R"("n": 2)", "field n: give num_samples"},
        {R"("best_of": 3)", "field best_of: give num_samples"},
        {R"("logprobs": 5)", "logprobs is for generate"},
        {R"("logprobs": 21)", "logprobs must be a whole number from 0 to 20"},
        {R"("logprobs": true)", "logprobs must be a whole number"},
        {R"("n_probs": 2)", "field n_probs is unknown; did you mean logprobs?"},
        {R"("top_logprobs": 2)", "field top_logprobs"},
        {R"("prompt_logprobs": 0)", "field prompt_logprobs"},
        {R"("tools": [{}])", "field tools has no effect without messages"},
        {R"("tool_choice": "required")", "field tool_choice"},
        {R"("functions": [1])", "field functions"},
        {R"("response_format": {"type": "json_object"})",
         "field response_format: it is of OpenAI's API; give json_schema"},
        {R"("guided_json": {})", "field guided_json: give json_schema"},
        {R"("stream": true)", "field stream: a result is written once"},
        {R"("suffix": "x")", "field suffix"},
        {R"("echo": true)", "field echo: text is what follows the prompt"},
        {R"("num_beams": 4)", "num_beams 4 is more than the 1 of the run; use --num-beams 4"},
        {R"("length_penalty": 0.8)", "length_penalty needs beam search; use --num-beams"},
        {R"("do_sample": true)", "do_sample is true at temperature 0"},
        {R"("do_sample": false, "temperature": 1)", "do_sample is false at a temperature above 0"},
        {R"("do_sample": 1)", "do_sample must be true or false"},
        {R"("stop_token_ids": [3])", "field stop_token_ids"},
        {R"("include_stop_str_in_output": true)", "field include_stop_str_in_output"},
        {R"("max_completion_tokens": 3)", "did you mean max_new_tokens?"},
        {R"("min_tokens": 3)", "did you mean min_new_tokens?"},
        {R"("repeat_penalty": 1.1)", "did you mean repetition_penalty?"},
        {R"("stop_sequences": ["a"])", "did you mean stop?"},
        {R"("maxTokens": 5)", "did you mean max_new_tokens?"},
        {R"("max-output-tokens": 5)", "did you mean max_new_tokens?"},
        {R"("bestOf": 3)", "field bestOf: give num_samples"},
        {R"("responseFormat": {"type": "json_object"})", "field responseFormat: it is of OpenAI's API"},
    };
    for (const auto& [field, part] : cases) {
        const std::string error = error_of(R"({"prompt": "p", )" + field + "}");
        EXPECT_NE(error.find(part), std::string::npos) << field << " gave: " << error;
    }
    EXPECT_NE(error_of(R"({"custom_id": "a", "method": "POST", "url": "/v1", "body": {"prompt": "p"}})").find("jq -c"),
              std::string::npos);
}

TEST(Requests, ValuesThatAskForNothingElseThanWhatIsServedAreTaken) {
    const spec::Request request = served(
        R"({"prompt": "p", "n": 1, "best_of": null, "logprobs": false, "top_logprobs": 0, "tools": [], "functions": null,
            "tool_choice": "none", "response_format": {"type": "text"}, "guided_json": null, "stream": false,
            "suffix": "", "echo": false, "num_beams": 1, "length_penalty": 1.0, "do_sample": false, "stop": null,
            "skip_special_tokens": true, "user": "u"})");
    EXPECT_EQ(request.metadata, R"({"user":"u"})") << "nothing of these is data";
    EXPECT_EQ(error_of(R"({"prompt": "p", "do_sample": true, "temperature": 0.5})"), "served");
}

TEST(Requests, ALineSaysWhatItsTextIsHeldTo) {
    using model::grammar::Language;
    using model::grammar::Source;
    RequestDefaults defaults;
    defaults.has_results = true;
    defaults.processing.constraint = {Language::regex, "a+"};
    const auto constraint_of = [&](const std::string& fields) {
        return served(R"({"prompt": "p")" + fields + "}", defaults).processing.constraint;
    };
    EXPECT_EQ(constraint_of(""), (Source{Language::regex, "a+"}));
    EXPECT_EQ(constraint_of(R"(, "json_schema": null)"), (Source{Language::regex, "a+"}));
    EXPECT_EQ(constraint_of(R"(, "regex": "b")"), (Source{Language::regex, "b"}));
    EXPECT_EQ(constraint_of(R"(, "json_schema": {"type": "object", "properties": {"z": true, "a": true}})"),
              (Source{Language::json_schema, R"({"type":"object","properties":{"z":true,"a":true}})"}))
        << "in the order given";
    const std::pair<const char*, const char*> cases[] = {
        {R"("json_schema": "x")", "json_schema must be a schema"},
        {R"("json_schema": {"properties": {"a": {"not": {}}}})",
         "json_schema: #/properties/a: keyword 'not' is not supported"},
        {R"("regex": "a(")", "regex: line 1, byte 3: ) is missing"},
        {R"("regex": 3)", "regex must be a string"},
        {R"("grammar": "root ::= x")", "grammar: there is no rule 'x'"},
        {R"("grammar": "root ::= [a]", "regex": "a")", "both regex and grammar are given; give one"},
        {R"("regex": "a", "ignore_eos": true)", "regex does not go with ignore_eos"},
    };
    for (const auto& [field, part] : cases) {
        const std::string error = error_of(std::string(R"({"prompt": "p", )") + field + "}", defaults);
        EXPECT_NE(error.find(part), std::string::npos) << field << " gave: " << error;
    }
    defaults.has_results = false;
    EXPECT_EQ(error_of(R"({"prompt": "p", "regex": "b"})", defaults), "regex is for generate; leave it out");
}

TEST(Requests, ALineHasStopStringsOfItsOwn) {
    RequestDefaults defaults;
    defaults.stop_strings = {"END"};
    const auto stops_of = [&](const std::string& text) {
        Line line;
        line.text = text;
        const InputItem item = parse_request(line, 1, defaults, limits());
        const auto* bad = std::get_if<BadLine>(&item);
        return bad ? std::vector{bad->error} : std::get<spec::Request>(item).stop_strings;
    };
    EXPECT_EQ(stops_of(R"({"prompt": "p"})"), Strings{"END"});
    EXPECT_EQ(stops_of(R"({"prompt": "p", "stop": null})"), Strings{"END"});
    EXPECT_EQ(stops_of(R"({"prompt": "p", "stop": "\n"})"), Strings{"\n"});
    EXPECT_EQ(stops_of(R"({"prompt": "p", "stop": ["a", "b"]})"), (Strings{"a", "b"}));
    EXPECT_EQ(stops_of(R"({"prompt": "p", "stop": []})"), Strings{});
    EXPECT_EQ(stops_of(R"({"prompt": "p", "stop": ""})"), Strings{"stop is empty; give the string that ends the text"});
    EXPECT_EQ(stops_of(R"({"prompt": "p", "stop": [1]})"), Strings{"stop must be a string or a list of strings"});
}

TEST(Requests, EveryBadLineSaysWhatIsWrong) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {R"(not json)",
         "not JSON: unexpected text at byte 2; a line is one object such as {\"prompt\": \"...\"}: jq -Rc"},
        {R"([{"prompt": "p"},)", "jq -c '.[]' FILE makes lines of a list"},
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
        {R"({"prompt": "p", "stop_rule": 2.25})", "stop_rule must be a string"},
        {R"({"prompt": "p", "summary": "s"})",
         "field summary cannot be set by line; use --summary, or put it into metadata if it is data of your own"},
        {R"({"prompt": "p", "logit_bias": {" 5": 1}})", "token id in logit_bias"},
        {R"({"prompt": "p", "logit_bias": {"-0": 1}})", "token id in logit_bias"},
        {R"({"prompt": "p", "logit_bias": {"": 1}})", "token id in logit_bias"},
        {R"({"prompt": "p", "chat": true})", "cannot be set by line; use --chat"},
        {R"({"prompt": "p", "system": "s"})", "cannot be set by line; use --system"},
        {R"({"prompt": "p", "costs": "f"})", "cannot be set by line; use --costs"},
        {R"({"prompt": "p", "ignore-eos": true})", "field ignore-eos is unknown; did you mean ignore_eos?"},
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
    const auto nested = [](std::size_t lists) {
        return R"({"prompt": "p", "id": )" + std::string(lists, '[') + std::string(lists, ']') + "}";
    };
    EXPECT_EQ(error_of(nested(63)), "served") << "64 with the object";
    EXPECT_NE(error_of(nested(64)), "served");
}

TEST(Requests, OnlyUnreadableLinesAreKnownByNumber) {
    const auto unreadable = std::get<BadLine>(item_of("{", {}, 7));
    EXPECT_EQ(unreadable.id, "null");
    EXPECT_EQ(unreadable.line, 7);
    const auto readable = std::get<BadLine>(item_of(R"({"id": "x"})", {}, 7));
    EXPECT_EQ(readable.id, R"("x")");
    EXPECT_FALSE(readable.line.has_value());
}

TEST(Requests, ABadLineDoesNotStopTheOthersAndBlankLinesCount) {
    const auto items = read_all("{\"prompt\":\"a\"}\n\n  \r\nnonsense\n{\"prompt\":\"b\"}"); // no newline at the end
    ASSERT_EQ(items.size(), 3u);
    EXPECT_EQ(id_of(items[0]), "1");
    EXPECT_EQ(std::get<BadLine>(items[1]).line, 4);
    EXPECT_EQ(id_of(items[2]), "5");
    EXPECT_TRUE(std::holds_alternative<spec::Request>(items[2]));
}

TEST(Requests, ARepeatedIdIsABadLineAlsoAfterABadOne) {
    const auto items = read_all("{\"id\":\"a\",\"prompt\":\"p\"}\n{\"prompt\":\"p\",\"id\":\"a\"}\n{\"id\":\"b\"}\n"
                                "{\"id\":\"b\",\"prompt\":\"p\"}\n{\"id\":6,\"prompt\":\"p\"}\n{\"prompt\":\"p\"}\n");
    ASSERT_EQ(items.size(), 6u);
    EXPECT_NE(std::get<BadLine>(items[1]).error.find("used by an earlier line"), std::string::npos);
    EXPECT_NE(std::get<BadLine>(items[3]).error.find("used by an earlier line"), std::string::npos);
    EXPECT_NE(std::get<BadLine>(items[5]).error.find("id 6 was used"), std::string::npos); // its line number
}

// What is said of each item of a piece: its id, and the error if it is a bad line.
std::vector<std::string> words_of_share(const std::string& file, const InputShard& shard) {
    RequestReader reader(file, RequestDefaults{}, limits());
    reader.keep(shard);
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
        "{\"id\":\"y\",\"prompt\":\"e\"}\n{\"id\":1,\"prompt\":\"f\"}"); // no newline at the end
    const auto whole = words_of_share(file.path(), {0, 1});
    ASSERT_EQ(whole.size(), 8u);
    EXPECT_EQ(whole[2].rfind("null 4 not JSON", 0), 0u) << whole[2];
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
    const test::ScratchFile place("");
    const std::string pipe = place.path() + "-pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    RequestReader reader(pipe, RequestDefaults{}, limits());
    EXPECT_THROW(reader.keep({0, 2}), std::runtime_error);
    unlink(pipe.c_str());
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

TEST(LineReader, WhatIsAppendedToAFileMeanwhileIsNotRead) {
    const test::ScratchFile file("first\n");
    LineReader reader(file.path());
    std::ofstream(file.path(), std::ios::app) << "second\n";
    EXPECT_EQ(reader.next()->text, "first");
    std::ofstream(file.path(), std::ios::app) << "third\n";
    EXPECT_FALSE(reader.next().has_value()) << "a run whose results go into its input would never end";
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
    FILE* const endless = popen("tr '\\0' x < /dev/zero", "r");
    {
        LineReader reader("/dev/fd/" + std::to_string(fileno(endless)), 1000);
        reader.set_patience(std::chrono::milliseconds(5));
        for (int i = 0; i < 2; ++i) {
            EXPECT_FALSE(reader.next().has_value());
            EXPECT_TRUE(reader.waiting());
        }
    }
    pclose(endless);
}

TEST(LineReader, NamesAFileThatCannotBeRead) {
    try {
        LineReader("/dev/null/nonexistent/in.jsonl");
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("/dev/null/nonexistent/in.jsonl: cannot be opened"),
                  std::string::npos);
    }
    EXPECT_THROW(LineReader("/"), std::runtime_error);
}

} // namespace requests_test
