// Renders conversations by chat template, for chat_template_differential.py and by hand; not a test, not installed.
// Lines of JSON in: {"template", "tokens", "messages", "tools", "variables"}, or {"template", "variables"} for the
// language alone; out: {"text"} or {"error"}.
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "model/files/gguf_file.h"
#include "model/text/chat/chat_template.h"
#include "model/text/chat/json_value.h"

using namespace entrodraft::model;
using Json = nlohmann::ordered_json;

namespace entrodraft::model { // in place of gguf_file.cpp, which the driver needs nothing of

std::optional<std::filesystem::path> gguf_file_of(const std::filesystem::path&) {
    return std::nullopt;
}

GgufFile open_gguf(const std::filesystem::path&) {
    return {};
}

} // namespace entrodraft::model

static jinja::Variables variables_of(const Json& object) {
    jinja::Variables variables;
    for (const auto& [name, value] : object.items())
        variables.emplace_back(name, jinja::value_of_json(value));
    return variables;
}

static std::string rendered(const Json& line) {
    const std::string text = line["template"];
    const auto variables = variables_of(line["variables"]);
    if (!line.contains("messages")) {
        std::tm now{};
        now.tm_mday = 26;
        now.tm_mon = 6;
        now.tm_year = 124;
        timegm(&now);
        return jinja::Template(text).render(variables, now);
    }
    const ChatTemplate chat("driver", text, variables_of(line["tokens"]));
    return chat.render({jinja::value_of_json(line["messages"]), jinja::value_of_json(line["tools"]), variables});
}

int main() {
    for (std::string text; std::getline(std::cin, text);) {
        Json answer;
        try {
            answer["text"] = rendered(Json::parse(text));
        } catch (const std::exception& error) {
            answer["error"] = error.what();
        }
        std::cout << answer.dump() << '\n';
    }
}
