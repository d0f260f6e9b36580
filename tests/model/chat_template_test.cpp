// Chat templates: the named forms against what transformers renders, which template is recognised, and what bad files
// and conversations are told. The golden texts are made by chat_template_differential.py.
#include "model/chat/chat_forms.h"
#include "model/chat/chat_template.h"
#include "model/checkpoint/bad_file.h"
#include "model/checkpoint/json_file.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace chat_template_test {

using namespace entrodraft;
using namespace entrodraft::model;
using Role = ChatMessage::Role;

// A template of our own: chatml.
const std::string kChatmlText = read_text_file(ENTRODRAFT_SOURCE_DIR "/tests/model/chatml.jinja", 1 << 20);
const ChatTokens kTokens = {"<s>", "</s>"};

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump();
}

std::string render(const std::string& form, const std::vector<ChatMessage>& messages, ChatTokens tokens = kTokens) {
    return ChatTemplate(*find_chat_form(form), std::move(tokens)).render(messages);
}

template <typename Call> std::string message_of(Call call) {
    try {
        call();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "no error";
}

std::string refusal(const std::string& form, const std::vector<ChatMessage>& messages, ChatTokens tokens = kTokens) {
    return message_of([&] { render(form, messages, tokens); });
}

std::string open_error(const TemporaryDirectory& directory) {
    return message_of([&] { ChatTemplate::open(directory.path()); });
}

ChatMessage message_of_json(const nlohmann::json& message) {
    const std::string role = message["role"];
    return {role == "system" ? Role::system : role == "user" ? Role::user : Role::assistant, message["content"]};
}

TEST(ChatTemplate, EveryFormRendersWhatTransformersRenders) {
    const auto golden = read_json_file(ENTRODRAFT_SOURCE_DIR "/tests/model/chat_templates.json", 1 << 20);
    const ChatTokens tokens = {golden["tokens"]["bos_token"].get<std::string>(),
                               golden["tokens"]["eos_token"].get<std::string>()};
    for (const std::string_view name : chat_form_names()) {
        if (name == "vicuna") continue; // no checkpoint carries one; tested below
        const std::string form(name);
        ASSERT_TRUE(golden["forms"].contains(form)) << form;
        const auto& texts = golden["forms"][form];
        ASSERT_EQ(texts.size(), golden["chats"].size());
        EXPECT_GE(std::count_if(texts.begin(), texts.end(), [](const auto& text) { return text.is_string(); }), 4);
        for (std::size_t i = 0; i < texts.size(); ++i) {
            std::vector<ChatMessage> messages;
            for (const auto& message : golden["chats"][i])
                messages.push_back(message_of_json(message));
            if (texts[i].is_null())
                EXPECT_THROW(render(form, messages, tokens), std::invalid_argument) << form << " chat " << i;
            else
                EXPECT_EQ(render(form, messages, tokens), texts[i].get<std::string>()) << form << " chat " << i;
        }
    }
}

TEST(ChatTemplate, VicunaIsAsItsAuthorsRunIt) {
    EXPECT_EQ(render("vicuna", {{Role::system, "Be kind."},
                                {Role::user, "Hi"},
                                {Role::assistant, "Hello!"},
                                {Role::user, "Who are you?"}}),
              "<s>Be kind. USER: Hi ASSISTANT: Hello!</s>USER: Who are you? ASSISTANT:");
    EXPECT_EQ(render("vicuna", {{Role::user, "Hi"}}).rfind("<s>A chat between a curious user", 0), 0u);
}

TEST(ChatTemplate, ConversationsOutOfOrderAreToldWhichMessageIsWrong) {
    const ChatMessage system = {Role::system, "s"}, user = {Role::user, "u"}, assistant = {Role::assistant, "a"};
    EXPECT_EQ(refusal("chatml", {}), "messages is empty");
    EXPECT_EQ(refusal("gemma", {system, user}),
              "messages[0]: the chat template gemma takes no system message; put it into the user's");
    EXPECT_EQ(refusal("llama-2", {user, assistant, assistant}),
              "messages[2]: the chat template llama-2 needs user and assistant to take turns, the user first; this is "
              "from the assistant");
    EXPECT_EQ(refusal("mistral-v1", {system, assistant}),
              "messages[1]: the chat template mistral-v1 needs user and assistant to take turns, the user first; this "
              "is from the assistant");
    EXPECT_EQ(refusal("llama-3.1", {user, system}),
              "messages[1]: the chat template llama-3.1 takes a system message before all others only");
    EXPECT_NE(refusal("llama-2", {system}).find("needs a message of the user"), std::string::npos);
    EXPECT_NE(refusal("mistral-v3", {system, user, assistant}).find("leaves the system message out"),
              std::string::npos);
    EXPECT_EQ(refusal("chatml", {user, user, system, assistant, assistant}), "no error");
    EXPECT_EQ(refusal("chatml", {{Role::user, "ab\xff"}}), "messages[0]: invalid UTF-8 at byte 2");
    EXPECT_NE(refusal("deepseek-r1", {user, {Role::assistant, "<think>a</think>b"}}).find("cannot be continued"),
              std::string::npos);
}

TEST(ChatTemplate, ALastMessageOfTheAssistantIsContinuedWithItsBlanksWhereTheFormKeepsThem) {
    const std::vector<ChatMessage> messages = {{Role::user, "Count"}, {Role::assistant, "1, 2, "}};
    EXPECT_EQ(render("chatml", messages), "<|im_start|>user\nCount<|im_end|>\n<|im_start|>assistant\n1, 2, ");
    EXPECT_EQ(render("gemma", messages), "<s><start_of_turn>user\nCount<end_of_turn>\n<start_of_turn>model\n1, 2,");
}

TEST(ChatTemplate, ATokenThatTheCheckpointDoesNotNameIsMissedOnlyWhereItIsWritten) {
    const std::vector<ChatMessage> one = {{Role::user, "u"}};
    EXPECT_EQ(render("deepseek-llm", one, {}), "User: u\n\nAssistant:");
    EXPECT_NE(refusal("llama-3", one, {}).find("writes the bos_token, and tokenizer_config.json does not say"),
              std::string::npos);
    EXPECT_NE(refusal("zephyr", one, {"<s>", std::nullopt}).find("writes the eos_token"), std::string::npos);
}

TEST(ChatTemplate, PlaceholdersInMessagesStandAsTheyAre) {
    EXPECT_EQ(render("mistral-no-system", {{Role::user, "{bos} {eos} {date} {"}}),
              "<s>[INST] {bos} {eos} {date} { [/INST]");
}

TEST(ChatTemplate, TheDateIsFixedUnlessItIsSet) {
    ChatTemplate dated(*find_chat_form("llama-3.1"), kTokens);
    EXPECT_TRUE(dated.has_date());
    EXPECT_FALSE(ChatTemplate(*find_chat_form("llama-3"), kTokens).has_date());
    const std::vector<ChatMessage> one = {{Role::user, "u"}};
    EXPECT_NE(dated.render(one).find("Today Date: 26 Jul 2024\n"), std::string::npos);
    dated.set_date("21 Nov 2026");
    EXPECT_NE(dated.render(one).find("Today Date: 21 Nov 2026\n"), std::string::npos);
}

TEST(ChatTemplate, ATemplateIsKnownByItsTextWhateverItsLineEnds) {
    EXPECT_EQ(recognize_chat_template(kChatmlText), "chatml");
    const std::string text = kChatmlText.substr(0, kChatmlText.size() - 1);
    EXPECT_EQ(recognize_chat_template(text), "chatml");
    EXPECT_EQ(recognize_chat_template(text + "\r\n\r\n"), "chatml");
    EXPECT_EQ(recognize_chat_template(text + "\n\n\n"), std::nullopt); // the last of these is written
    EXPECT_EQ(recognize_chat_template(kChatmlText + " "), std::nullopt);
    EXPECT_EQ(recognize_chat_template(""), std::nullopt);
}

TEST(ChatTemplate, ComesFromItsOwnFileElseFromTheTokenizersSettings) {
    const TemporaryDirectory directory;
    EXPECT_FALSE(ChatTemplate::open(directory.path()).has_value());
    directory.write("tokenizer_config.json", R"({"bos_token": null, "chat_template": null})");
    EXPECT_FALSE(ChatTemplate::open(directory.path()).has_value());
    directory.write("tokenizer_config.json", R"({"chat_template": )" + quoted(kChatmlText) + "}");
    EXPECT_EQ(ChatTemplate::open(directory.path())->name(), "chatml");
    directory.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "{{ x }}"},
                                                 {"name": "default", "template": )" +
                                                 quoted(kChatmlText) + "}]}");
    EXPECT_EQ(ChatTemplate::open(directory.path())->name(), "chatml");
    directory.write("chat_template.jinja", "{{ x }}");
    EXPECT_NE(
        open_error(directory).find("chat_template.jinja: the chat template that begins with '{{ x }}' is none that "
                                   "is known here; --chat-template NAME takes one of chatml, "),
        std::string::npos)
        << open_error(directory);
}

TEST(ChatTemplate, TokensComeFromTheSettingsAsTextOrObjectElseFromTheMap) {
    const TemporaryDirectory directory;
    const std::vector<ChatMessage> chat = {{Role::user, "u"}, {Role::assistant, "a"}, {Role::user, "v"}};
    directory.write("tokenizer_config.json",
                    R"({"bos_token": "<b>", "eos_token": {"content": "<e>", "lstrip": false}})");
    const auto rendered = [&] { return ChatTemplate::named("llama-2", directory.path()).render(chat); };
    EXPECT_EQ(rendered(), "<b>[INST] u [/INST] a <e><b>[INST] v [/INST]");
    directory.write("special_tokens_map.json", R"({"bos_token": "<m>", "eos_token": "<n>"})");
    directory.write("tokenizer_config.json", R"({"eos_token": "<e>"})");
    EXPECT_EQ(rendered(), "<m>[INST] u [/INST] a <e><m>[INST] v [/INST]");
    directory.write("tokenizer_config.json", R"({"bos_token": null})");
    EXPECT_NE(message_of(rendered).find("writes the bos_token"), std::string::npos);
}

TEST(ChatTemplate, AnUnknownNameIsToldAllNames) {
    const TemporaryDirectory directory;
    const std::string error = message_of([&] { ChatTemplate::named("lama", directory.path()); });
    EXPECT_NE(error.find("no chat template named 'lama'; there are chatml, "), std::string::npos) << error;
}

TEST(ChatTemplate, BadFilesAreRefusedWithFileAndReason) {
    struct Case {
        const char* file;
        std::string text;
        const char* part;
    };
    const std::vector<Case> cases = {
        {"tokenizer_config.json", "[]", "tokenizer_config.json: not a JSON object"},
        {"tokenizer_config.json", "{", "tokenizer_config.json"},
        {"tokenizer_config.json", R"({"chat_template": 5})", "chat_template must be a string or a list"},
        {"tokenizer_config.json", R"({"chat_template": [5]})", "must have a name and a template"},
        {"tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})", "must have a name and a template"},
        {"tokenizer_config.json", R"({"chat_template": []})", "no entry named default"},
        {"tokenizer_config.json", R"({"bos_token": 5, "chat_template": )" + quoted(kChatmlText) + "}",
         "field bos_token must be a string or an object"},
        {"tokenizer_config.json", R"({"chat_template": ")" + std::string((1 << 20) + 1, 'x') + "\"}",
         "more than 1048576 bytes"},
        {"tokenizer_config.json", R"({"chat_template": "\u001b[31m\nsecond"})", R"(begins with '\x1b[31m' is none)"},
        {"chat_template.jinja", "", "begins with '' is none"},
        {"chat_template.jinja", "ok\xff", "chat_template.jinja: invalid UTF-8 at byte 2"},
        {"chat_template.jinja", std::string((1 << 20) + 1, 'x'), "chat_template.jinja: 1048577 bytes are more than"},
    };
    for (const Case& one : cases) {
        const TemporaryDirectory directory;
        directory.write(one.file, one.text);
        EXPECT_NE(open_error(directory).find(one.part), std::string::npos)
            << one.part << " / " << open_error(directory);
    }
}

} // namespace chat_template_test
