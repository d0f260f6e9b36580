// Reasoning, content and calls of chats, from whole texts and from pieces of them.
#include "launch/http/message_parts.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace message_parts_test {

using namespace entrodraft::launch;

const MessageForm kTools = {.begins_in_reasoning = false, .tool_names = {"weather", "time"}, .one_call = false};

std::string shown(const MessageParts& parts) {
    std::string text = "[" + parts.reasoning + "|" + parts.content + "]";
    for (const ToolCall& call : parts.calls)
        text += call.name + call.arguments;
    return text;
}

TEST(MessageParts, TakeCallsInTheFormsOfFourFamilies) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
         R"([|]weather{"city":"Paris"})"},
        {"Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>\n"
         "<tool_call>{\"name\": \"time\", \"arguments\": \"{\\\"at\\\": 1}\"}</tool_call>",
         R"([|Let me look.]weather{}time{"at": 1})"},
        {R"({"name": "weather", "parameters": {"city": "Rome"}})", R"([|]weather{"city":"Rome"})"},
        {R"(<|python_tag|>{"name": "time", "parameters": {}}; {"name": "time", "parameters": {"x": 2}})",
         R"([|]time{}time{"x":2})"},
        {R"([TOOL_CALLS] [{"name": "weather", "arguments": {"a": [1]}}, {"name": "time"}])",
         R"([|]weather{"a":[1]}time{})"},
        {R"([{"name": "weather", "arguments": {}}])", "[|]weather{}"},
    };
    for (const auto& [text, parts] : cases)
        EXPECT_EQ(shown(parts_of(text, kTools)), parts) << text;
}

TEST(MessageParts, LeaveTextThatIsNoCallOfAKnownTool) {
    for (const std::string text :
         {"Hello.", "{\"name\": \"other\", \"arguments\": {}}", "{\"a\": 1}", "[1, 2]", "{not JSON", "a < b",
          "<tool_call>{\"name\": \"other\"}</tool_call>", "<tool_call>never ended", " leading blanks", "<tool", ""}) {
        EXPECT_EQ(shown(parts_of(text, kTools)), "[|" + text + "]");
        EXPECT_EQ(shown(parts_of(text, {})), "[|" + text + "]");
    }
    EXPECT_EQ(shown(parts_of(R"({"name": "weather", "arguments": {}})", {})),
              R"([|{"name": "weather", "arguments": {}}])")
        << "without tools nothing is a call";
}

TEST(MessageParts, ReasoningIsApart) {
    EXPECT_EQ(shown(parts_of("<think>\nIt is so.\n</think>\n\nYes.", {})), "[It is so.|Yes.]");
    MessageForm begun;
    begun.begins_in_reasoning = true;
    EXPECT_EQ(shown(parts_of("It is so.\n</think>\n\nYes.", begun)), "[It is so.|Yes.]");
    EXPECT_EQ(shown(parts_of("<think>\nstill going \n", {})), "[still going|]");
    EXPECT_EQ(shown(parts_of("No mark here</think>", {})), "[|No mark here</think>]");
    EXPECT_EQ(shown(parts_of("<think></think>Yes", {})), "[|Yes]");
    EXPECT_EQ(shown(parts_of("<think>a</think> <tool_call>{\"name\": \"time\"}</tool_call>", kTools)), "[a|]time{}");
}

TEST(MessageParts, OneCallAtMostIfOnlyOneIsWanted) {
    MessageForm one = kTools;
    one.one_call = true;
    EXPECT_EQ(shown(parts_of(R"([{"name": "time"}, {"name": "weather"}])", one)), "[|]time{}");
}

TEST(MessageStream, PiecesMakeTheWholeHoweverTheyAreCut) {
    const std::vector<std::string> texts = {
        "<think>\nIt is  so.\n</think>\n\nYes, a < b.",
        "<think>x</think>\nLet me look. <tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>",
        R"(  {"name": "time", "parameters": {"x": "<think>"}})",
        "Plain <tool text, and {braces}.",
        "{ no call",
        "<th",
        "<think>\n\n</think>\n\nHello  "};
    std::mt19937 random(3);
    for (const std::string& text : texts)
        for (const MessageForm& form : {kTools, MessageForm{}}) {
            const MessageParts whole = parts_of(text, form);
            for (int repetition = 0; repetition < 50; ++repetition) {
                MessageStream stream(form);
                MessageParts all;
                const auto add = [&](const MessageParts& parts) {
                    all.reasoning += parts.reasoning;
                    all.content += parts.content;
                    all.calls.insert(all.calls.end(), parts.calls.begin(), parts.calls.end());
                };
                for (std::size_t at = 0; at < text.size();) {
                    const std::size_t n = 1 + random() % 6;
                    const MessageParts parts = stream.push(text.substr(at, n));
                    EXPECT_TRUE(parts.calls.empty());
                    add(parts);
                    at += n;
                }
                add(stream.finish());
                if (!all.calls.empty()) // blanks before a call may have gone out
                    all.content.erase(all.content.find_last_not_of(" \n") + 1);
                EXPECT_EQ(shown(all), shown(whole)) << text;
            }
        }
}

} // namespace message_parts_test
