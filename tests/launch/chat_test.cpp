// Conversations in input lines, and which chat template they are put into.
#include "launch/io/chat.h"
#include "launch/io/requests.h"
#include "launch/start/failure.h"
#include "model/text/chat/chat_template.h"
#include "tests/model/temporary_directory.h"

#include <filesystem>
#include <gtest/gtest.h>

namespace chat_test {

using namespace entrodraft;
using namespace entrodraft::launch;

// A tokenizer of one token a byte, behind chatml; a plain prompt gets a token 1 in front.
PromptLimits limits_of(const Chat& chat) {
    PromptLimits limits;
    limits.encode = [](std::string_view text) {
        std::vector<spec::TokenId> ids(text.begin(), text.end());
        ids.insert(ids.begin(), 1);
        return ids;
    };
    limits.encode_chat = [chat](const model::Conversation& conversation) {
        const std::string text = chat.render(conversation);
        return std::vector<spec::TokenId>(text.begin(), text.end());
    };
    limits.vocab_size = 128;
    limits.max_positions = 1000;
    return limits;
}

Chat chatml() {
    return open_chat("/dev/null/nonexistent", {.is_needed = true, .name = "chatml", .date = ""});
}

std::string text_of(const InputItem& item) {
    if (const auto* bad = std::get_if<BadLine>(&item)) return "error: " + bad->error;
    const auto& prompt = std::get<spec::Request>(item).prompt;
    return std::string(prompt.begin(), prompt.end());
}

std::string served(const std::string& text, const RequestDefaults& defaults = {}, const Chat& chat = chatml()) {
    Line line;
    line.text = text;
    return text_of(parse_request(line, 3, defaults, limits_of(chat)));
}

template <typename Call> std::string refusal(Call call) {
    try {
        call();
    } catch (const BadOption& error) {
        return error.what();
    }
    return "accepted";
}

TEST(Chat, MessagesGoThroughTheTemplateWithoutAnyOption) {
    EXPECT_EQ(served(R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]})"),
              "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(served(R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "One, "}]})"),
              "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\nOne, ");
}

TEST(Chat, PartsOfTypeTextArePutTogether) {
    EXPECT_EQ(served(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                                                                  {"type": "text", "text": "b"}]}]})"),
              "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Chat, PromptsAreMessagesOfTheUserOnlyWithChat) {
    RequestDefaults defaults;
    EXPECT_EQ(served(R"({"prompt": "p"})", defaults), "\001p");
    defaults.chat = true;
    EXPECT_EQ(served(R"({"prompt": "p"})", defaults), "<|im_start|>user\np<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(served(R"({"prompt_token_ids": [65, 66]})", defaults), "AB");
    EXPECT_EQ(served(R"({"prompt": ""})", defaults), "error: prompt is empty");
    EXPECT_EQ(text_of(request_of_prompt("p", defaults, limits_of(chatml()))),
              "<|im_start|>user\np<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Chat, TheSystemMessageOfTheCommandLineBeginsConversationsThatBringNone) {
    RequestDefaults defaults;
    defaults.chat = true;
    defaults.system = "S";
    EXPECT_EQ(served(R"({"prompt": "p"})", defaults).rfind("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\np", 0),
              0u);
    EXPECT_EQ(served(R"({"messages": [{"role": "user", "content": "u"}]})", defaults)
                  .rfind("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nu", 0),
              0u);
    EXPECT_EQ(
        served(R"({"messages": [{"role": "system", "content": "own"}, {"role": "user", "content": "u"}]})", defaults)
            .rfind("<|im_start|>system\nown<|im_end|>\n<|im_start|>user\nu", 0),
        0u);
}

TEST(Chat, EveryBadConversationSaysWhatIsWrong) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {R"({"messages": "hello"})", "messages must be an array"},
        {R"({"messages": null})", "prompt, messages or prompt_token_ids is missing"},
        {R"({"messages": 5})", "messages must be an array"},
        {R"({"messages": []})", "messages is empty"},
        {R"({"messages": ["hello"]})", "messages[0]: must be an object"},
        {R"({"messages": [{"content": "u"}]})", "messages[0]: role must be a string"},
        {R"({"messages": [{"role": 5, "content": "u"}]})", "messages[0]: role must be a string"},
        {R"({"messages": [{"role": "user"}]})", "messages[0]: content must be a string"},
        {R"({"messages": [{"role": "user", "content": null}]})", "messages[0]: content must be a string"},
        {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0]: content must be a string"},
        {R"({"messages": [{"role": "user", "content": ["u"]}]})", "messages[0]: content[0]: only parts of type text"},
        {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "only parts of type text"},
        {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "content[0]: text must be a string"},
        {R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{}]}]})",
         "messages[0]: the assistant's last message is continued, and this one has no text in content"},
        {R"({"messages": [{"role": "user", "content": "u"}], "tools": {"type": "function"}})",
         "tools must be an array"},
        {R"({"messages": [{"role": "user", "content": "u"}], "tools": ["f"]})", "tools must be an array of objects"},
        {R"({"messages": [{"role": "user", "content": "u"}], "chat_template_kwargs": 5})",
         "chat_template_kwargs must be an object"},
        {R"({"messages": [{"role": "user", "content": "u"}], "chat_template_kwargs": {"messages": []}})",
         "chat_template_kwargs: messages cannot be set there"},
        {R"({"messages": [{"role": "user", "content": "u"}], "enable_thinking": false})",
         "field enable_thinking: give it in chat_template_kwargs"},
        {R"({"messages": [{"role": "user", "content": "u"}], "continue_final_message": true})", "leave it out: a last"},
        {R"({"prompt": "p", "tools": [{}]})", "field tools has no effect without messages"},
        {R"({"prompt": "p", "chat_template_kwargs": {"a": 1}})", "chat_template_kwargs has no effect without messages"},
        {R"({"messages": [], "prompt": "p"})", "both prompt and messages are given"},
        {R"({"messages": [], "prompt_token_ids": [1]})", "both messages and prompt_token_ids are given"},
        {R"({"id": 1})", "prompt, messages or prompt_token_ids is missing"},
    };
    for (const auto& [text, part] : cases)
        EXPECT_NE(served(text).find("error: "), std::string::npos) << text;
    for (const auto& [text, part] : cases)
        EXPECT_NE(served(text).find(part), std::string::npos) << text << " gave: " << served(text);
}

TEST(Chat, FieldsOfTheUserAndEmptyOnesOfOthersAreLeftAlone) {
    EXPECT_EQ(served(R"({"messages": [{"role": "user", "content": "u", "name": "x", "tool_calls": []}], "tools": null,
                         "source": "a"})"),
              "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(served(R"({"prompt": "p", "documents": [1]})"), "\001p");
}

TEST(Chat, WhatATemplateRefusesIsAnErrorOfTheLine) {
    const Chat gemma = open_chat("/dev/null/nonexistent", {.is_needed = false, .name = "gemma", .date = ""});
    EXPECT_EQ(
        served(R"({"messages": [{"role": "system", "content": "s"}]})", {}, gemma),
        "error: the chat template gemma refuses this conversation: there is no system message; put it into the user's");
}

TEST(Chat, ATargetWithoutATemplateFailsOnlyWhereOneIsNeeded) {
    const TemporaryDirectory directory;
    const std::string path = directory.path().string();
    const Chat none = open_chat(path, {});
    EXPECT_EQ(served(R"({"prompt": "p"})", {}, none), "\001p");
    EXPECT_NE(served(R"({"messages": [{"role": "user", "content": "u"}]})", {}, none).find("has no chat template"),
              std::string::npos);
    EXPECT_NE(refusal([&] {
                  open_chat(path, {.is_needed = true, .name = "", .date = ""});
              }).find("--chat: " + path + ": has no chat template"),
              std::string::npos);
    directory.write("chat_template.jinja", "{{ a b }}");
    EXPECT_EQ(served(R"({"prompt": "p"})", {}, open_chat(path, {})), "\001p");
    EXPECT_NE(refusal([&] {
                  open_chat(path, {.is_needed = true, .name = "", .date = ""});
              }).find("the chat template cannot be read, line 1: expected }}, found 'b'"),
              std::string::npos);
    EXPECT_EQ(refusal([&] { open_chat(path, {.is_needed = true, .name = "chatml", .date = ""}); }), "accepted");
}

TEST(Chat, ATargetsOwnTemplateIsUsed) {
    const TemporaryDirectory directory;
    std::filesystem::copy(ENTRODRAFT_SOURCE_DIR "/tests/model/chatml.jinja", directory.path() / "chat_template.jinja");
    const Chat own = open_chat(directory.path().string(), {.is_needed = true, .name = "", .date = ""});
    EXPECT_EQ(served(R"({"messages": [{"role": "user", "content": "u"}]})", {}, own),
              "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n");
}

Chat template_of(const TemporaryDirectory& directory, const std::string& text) {
    const std::string file = directory.write("own.jinja", text).string();
    return open_chat("/dev/null/nonexistent", {.is_needed = true, .name = file, .date = ""});
}

// 2^64 - 1, as hashes and ids are, and what no 64 bits hold.
TEST(Chat, LargeIntegersReachTheTemplateAsTheyAreWritten) {
    const TemporaryDirectory directory;
    const Chat chat =
        template_of(directory, "{{ messages[0].v }} {{ messages[0].v|tojson }} {{ tools|tojson }} {{ k }} "
                               "{{ messages[0].v != messages[0].w }}");
    const std::string line =
        R"({"id": 18446744073709551616, "own": 1.0, "messages": [{"role": "user", "content": "a \" 9", "n": 1.50,
            "v": 18446744073709551615, "w": -123456789012345678901234567890}], "tools": [{"a": 1e22}, {"b":
            [99999999999999999999, 9223372036854775808, 7]}], "chat_template_kwargs": {"k": 36893488147419103232}})";
    EXPECT_EQ(served(line, {}, chat),
              "18446744073709551615 18446744073709551615 "
              R"([{"a": 1e+22}, {"b": [99999999999999999999, 9223372036854775808, 7]}] 36893488147419103232 True)");
    EXPECT_NE(
        served(R"({"messages": [{"role": "user", "content": "a"}], "seed": 99999999999999999999})").find("error: seed"),
        std::string::npos);
}

std::string with_arguments(const std::string& arguments) {
    return R"({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"max_tokens": 1,
               "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls":
               [{"id": "c", "type": "function", "function": {"name": "f")" +
           arguments + R"(}}]}, {"role": "tool", "content": "3"}]}})";
}

TEST(Chat, ArgumentsOfACallOfOpenAisApiAreAnObjectAlsoWhereThereAreNone) {
    const TemporaryDirectory directory;
    const Chat chat = template_of(directory, "{{ messages[1].tool_calls[0].function.arguments|tojson }}");
    RequestDefaults defaults;
    defaults.format = InputFormat::openai;
    for (const char* none : {"", R"(, "arguments": "")", R"(, "arguments": " \n")", R"(, "arguments": null)",
                             R"(, "arguments": "{}")", R"(, "arguments": {})"})
        EXPECT_EQ(served(with_arguments(none), defaults, chat), "{}") << none;
    EXPECT_EQ(served(with_arguments(R"(, "arguments": "{\"v\": [18446744073709551615, 1.0, 99999999999999999999]}")"),
                     defaults, chat),
              R"({"v": [18446744073709551615, 1.0, 99999999999999999999]})");
    EXPECT_EQ(served(with_arguments(R"(, "arguments": {"v": 99999999999999999999})"), defaults, chat),
              R"({"v": 99999999999999999999})");
    EXPECT_NE(served(with_arguments(R"(, "arguments": "{")"), defaults, chat).find("not JSON"), std::string::npos);
}

TEST(Chat, UnknownNamesAndDatesThatNobodyWritesAreRefused) {
    EXPECT_NE(refusal([] {
                  open_chat("/dev/null/nonexistent", {.is_needed = true, .name = "lama", .date = ""});
              }).find("--chat-template: there is no chat template named 'lama'"),
              std::string::npos);
    EXPECT_EQ(
        refusal([] { open_chat("/dev/null/nonexistent", {.is_needed = true, .name = "chatml", .date = "1 May"}); }),
        "--chat-date has no effect: the chat template chatml writes no date");
    const TemporaryDirectory directory;
    directory.write("dated.jinja", "{{ strftime_now('%d %B %Y') }} {{ date_string }}");
    const std::string dated = (directory.path() / "dated.jinja").string();
    const auto text_on = [&](const std::string& date) {
        return served(R"({"messages": [{"role": "user", "content": "u"}]})", {},
                      open_chat("/dev/null/nonexistent", {.is_needed = true, .name = dated, .date = date}));
    };
    EXPECT_EQ(text_on(""), "26 July 2024 ");
    EXPECT_EQ(text_on("01 May 2026"), "01 May 2026 01 May 2026");
    EXPECT_EQ(refusal([&] { text_on("1st of May"); }),
              "--chat-date must be a date such as 26 Jul 2024, not '1st of May'");
}

TEST(Chat, TemplatesSeeToolsCallsAndVariablesOfTheLine) {
    const TemporaryDirectory directory;
    directory.write("own.jinja", "{{ tools | tojson }}|{{ mode }}|{% for m in messages %}{{ m.role }}:{{ m.content }}"
                                 "{{ m.tool_calls[0].name if m.tool_calls }}{{ m.tool_call_id }};{% endfor %}");
    const Chat own = open_chat("/dev/null/nonexistent",
                               {.is_needed = true, .name = (directory.path() / "own.jinja").string(), .date = ""});
    EXPECT_EQ(served(R"({"messages": [{"role": "user", "content": "u"},
                                      {"role": "assistant", "content": null, "tool_calls": [{"name": "now"}]},
                                      {"role": "tool", "content": "noon", "tool_call_id": "a1"}],
                         "tools": [{"name": "now"}], "chat_template_kwargs": {"mode": 5}})",
                     {}, own),
              R"([{"name": "now"}]|5|user:u;assistant:Nonenow;tool:noona1;)");
    RequestDefaults defaults;
    defaults.chat = true;
    EXPECT_EQ(served(R"({"prompt": "p", "tools": [{}], "chat_template_kwargs": {"mode": "x"}})", defaults, own),
              "[{}]|x|user:p;");
}

} // namespace chat_test
