// Conversations and the template they are put into: see chat.h.
#include "launch/io/chat.h"

#include "launch/failure.h"
#include "model/checkpoint/bad_file.h"
#include "model/checkpoint/json_object.h"

#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

Chat open_template(const std::string& directory, const std::string& name) {
    Chat chat;
    try {
        if (name.empty())
            chat.chat_template = model::ChatTemplate::open(directory);
        else
            chat.chat_template = model::ChatTemplate::named(name, directory);
    } catch (const std::invalid_argument& error) {
        if (name.find('/') != std::string::npos || name.ends_with(".jinja"))
            throw BadOption(
                "--chat-template " + name +
                ": files of templates are not run yet; name the form that it writes, such as chatml, "
                "llama-3 or qwen2.5 (an unknown name lists all), or give a prompt that is rendered already");
        throw BadOption(std::string("--chat-template: ") + error.what());
    } catch (const model::BadFile& error) {
        if (!name.empty()) throw;
        chat.why_none = error.what();
        return chat;
    }
    if (!chat.chat_template)
        chat.why_none = directory + ": has no chat template (tokenizer_config.json names none, and there is no "
                                    "chat_template.jinja); --chat-template NAME gives it one";
    return chat;
}

using Role = model::ChatMessage::Role;

const Json& value_of(const Json& object, const char* field) {
    static const Json none;
    const auto found = object.find(field);
    return found == object.end() ? none : *found;
}

Role role_of(const Json& message, const std::string& where) {
    const std::string role = model::text_of(value_of(message, "role"), where + "role");
    if (role == "system") return Role::system;
    if (role == "user") return Role::user;
    if (role == "assistant") return Role::assistant;
    throw std::runtime_error(where + "role " + model::in_quotes(role) + " is none of system, user, assistant");
}

std::string content_of(const Json& message, const std::string& where) {
    const Json& content = value_of(message, "content");
    if (content.is_string()) return content.get<std::string>();
    std::string text;
    std::size_t i = 0;
    for (const Json& part :
         model::array_of(content, where + "content", "a string, or an array of {\"type\": \"text\", \"text\"}")) {
        const std::string place = fmt::format("{}content[{}]: ", where, i++);
        if (!part.is_object() || value_of(part, "type") != "text")
            throw std::runtime_error(place + "only parts of type text are supported");
        text += model::text_of(value_of(part, "text"), place + "text");
    }
    return text;
}

model::ChatMessage message_of(const Json& message, const std::string& where) {
    if (!message.is_object()) throw std::runtime_error(where + "must be an object {\"role\", \"content\"}");
    // These would change the text if templates read them; other unknown fields are the user's own.
    for (const char* field :
         {"tool_calls", "tool_call_id", "function_call", "reasoning_content", "reasoning", "thinking"})
        if (!value_of(message, field).empty())
            throw std::runtime_error(fmt::format(
                "{}field {} is not supported in conversations; leave it out, or give prompt", where, field));
    const Role role = role_of(message, where);
    return {role, content_of(message, where)};
}

} // namespace

std::string Chat::render(const std::vector<model::ChatMessage>& messages) const {
    if (!chat_template) throw std::runtime_error("messages cannot be served: " + why_none);
    return chat_template->render(messages);
}

Chat open_chat(const std::string& directory, const ChatTemplateOptions& options) {
    Chat chat = open_template(directory, options.name);
    if (options.is_needed && !chat.chat_template) throw BadOption("--chat: " + chat.why_none);
    if (options.date.empty()) return chat;
    if (!chat.chat_template || !chat.chat_template->has_date())
        throw BadOption("--chat-date has no effect: " +
                        (chat.chat_template
                             ? "the chat template " + std::string(chat.chat_template->name()) + " writes no date"
                             : chat.why_none));
    chat.chat_template->set_date(options.date);
    return chat;
}

std::vector<model::ChatMessage> messages_of(const Json& line, const std::optional<std::string>& system) {
    const Json& list = model::array_of(line["messages"], "messages", "an array of {\"role\", \"content\"}");
    if (list.empty()) throw std::runtime_error("messages is empty");
    std::vector<model::ChatMessage> messages;
    for (const Json& message : list)
        messages.push_back(message_of(message, fmt::format("messages[{}]: ", messages.size())));
    if (system && messages.front().role != Role::system) messages.insert(messages.begin(), {Role::system, *system});
    return messages;
}

std::vector<model::ChatMessage> messages_of_prompt(const std::string& prompt,
                                                   const std::optional<std::string>& system) {
    if (system) return {{Role::system, *system}, {Role::user, prompt}};
    return {{Role::user, prompt}};
}

} // namespace entrodraft::launch
