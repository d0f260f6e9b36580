// Renders conversations by named chat form, for chat_template_differential.py and by hand; not a test, not installed.
// Lines of JSON in: {"form", "bos", "eos", "date", "messages"}, or {"template"}; out: {"text"} or {"error"}, or
// {"form"}.
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/chat/chat_forms.h"

using namespace entrodraft::model;
using nlohmann::json;

static std::optional<std::string> token(const json& line, const char* name) {
    return line[name].is_null() ? std::nullopt : std::optional<std::string>(line[name].get<std::string>());
}

static std::vector<ChatMessage> messages_of(const json& list) {
    std::vector<ChatMessage> messages;
    for (const json& message : list) {
        const std::string role = message["role"];
        messages.push_back({role == "system" ? ChatMessage::Role::system
                            : role == "user" ? ChatMessage::Role::user
                                             : ChatMessage::Role::assistant,
                            message["content"]});
    }
    return messages;
}

int main(int argc, char** argv) {
    if (argc > 1 && std::string(argv[1]) == "names") {
        for (const std::string_view name : chat_form_names())
            std::cout << name << '\n';
        return 0;
    }
    for (std::string text; std::getline(std::cin, text);) {
        const json line = json::parse(text);
        json answer;
        if (line.contains("template")) {
            const auto name = recognize_chat_template(line["template"].get<std::string>());
            answer["form"] = name ? json(*name) : json(nullptr);
        } else {
            try {
                answer["text"] =
                    render_chat(*find_chat_form(line["form"].get<std::string>()), messages_of(line["messages"]),
                                {token(line, "bos"), token(line, "eos")}, line["date"].get<std::string>());
            } catch (const std::exception& error) {
                answer["error"] = error.what();
            }
        }
        std::cout << answer.dump() << '\n';
    }
}
