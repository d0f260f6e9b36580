// The conversation of an input line: see messages.h.
#include "launch/io/messages.h"

#include "model/checkpoint/bad_file.h"

#include <stdexcept>

namespace entrodraft::launch {

namespace {

using Role = model::ChatMessage::Role;

bool is_given(const Json& object, const char* field) {
    const auto found = object.find(field);
    return found != object.end() && !found->is_null() && !(found->is_structured() && found->empty());
}

// Fields that would change the text if templates read them; other unknown ones are the user's own.
void refuse_fields(const Json& object, std::initializer_list<const char*> fields, const std::string& where) {
    for (const char* field : fields)
        if (is_given(object, field))
            throw std::runtime_error(where + "field " + field +
                                     " is not supported in conversations; leave it out, or give prompt");
}

Role role_of(const Json& message, const std::string& where) {
    if (!message.contains("role") || !message["role"].is_string())
        throw std::runtime_error(where + "role must be a string");
    const std::string role = message["role"].get<std::string>();
    if (role == "system") return Role::system;
    if (role == "user") return Role::user;
    if (role == "assistant") return Role::assistant;
    throw std::runtime_error(where + "role " + model::in_quotes(role) + " is none of system, user, assistant");
}

std::string text_of_part(const Json& part, const std::string& where) {
    if (!part.is_object() || !part.contains("type") || part["type"] != "text")
        throw std::runtime_error(where + "only parts of type text are supported");
    if (!part.contains("text") || !part["text"].is_string()) throw std::runtime_error(where + "text must be a string");
    return part["text"].get<std::string>();
}

std::string content_of(const Json& message, const std::string& where) {
    const Json content = message.contains("content") ? message["content"] : Json();
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array())
        throw std::runtime_error(where + "content must be a string, or an array of {\"type\": \"text\", \"text\"}");
    std::string text;
    for (std::size_t i = 0; i < content.size(); ++i)
        text += text_of_part(content[i], where + "content[" + std::to_string(i) + "]: ");
    return text;
}

void begin_with(const std::optional<std::string>& system, std::vector<model::ChatMessage>& messages) {
    if (system && (messages.empty() || messages.front().role != Role::system))
        messages.insert(messages.begin(), {Role::system, *system});
}

} // namespace

std::vector<model::ChatMessage> messages_of(const Json& line, const std::optional<std::string>& system) {
    const Json& list = line["messages"];
    if (!list.is_array()) throw std::runtime_error("messages must be an array of {\"role\", \"content\"}");
    if (list.empty()) throw std::runtime_error("messages is empty");
    std::vector<model::ChatMessage> messages;
    messages.reserve(list.size() + 1);
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string where = "messages[" + std::to_string(i) + "]: ";
        if (!list[i].is_object()) throw std::runtime_error(where + "must be an object {\"role\", \"content\"}");
        refuse_fields(list[i],
                      {"tool_calls", "tool_call_id", "function_call", "reasoning_content", "reasoning", "thinking"},
                      where);
        const Role role = role_of(list[i], where);
        messages.push_back({role, content_of(list[i], where)});
    }
    begin_with(system, messages);
    return messages;
}

std::vector<model::ChatMessage> messages_of_prompt(const std::string& prompt,
                                                   const std::optional<std::string>& system) {
    std::vector<model::ChatMessage> messages = {{Role::user, prompt}};
    begin_with(system, messages);
    return messages;
}

} // namespace entrodraft::launch
