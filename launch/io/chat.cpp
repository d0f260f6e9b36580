// Conversations and their templates: see chat.h.
#include "launch/io/chat.h"

#include "launch/start/failure.h"
#include "model/files/bad_file.h"
#include "model/files/json_object.h"
#include "model/text/chat/json_value.h"

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
        throw BadOption(std::string("--chat-template: ") + error.what());
    } catch (const model::BadFile& error) {
        if (!name.empty()) throw BadOption(std::string("--chat-template: ") + error.what());
        chat.why_none = error.what();
        return chat;
    }
    if (!chat.chat_template)
        chat.why_none = directory + ": has no chat template (tokenizer_config.json names none, and there is no "
                                    "chat_template.jinja); --chat-template NAME gives it one";
    return chat;
}

using Messages = std::vector<model::jinja::Value>;

const Json& value_of(const Json& object, const char* field) {
    static const Json none;
    const auto found = object.find(field);
    return found == object.end() ? none : *found;
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

// Returns the message with its content as one text. Other fields stay as they are; the template reads them.
model::jinja::Value message_of(const Json& message, const std::string& where) {
    if (!message.is_object()) throw std::runtime_error(where + "must be an object {\"role\", \"content\"}");
    model::text_of(value_of(message, "role"), where + "role");
    Json read = message;
    if (!value_of(message, "content").is_null() || value_of(message, "tool_calls").empty())
        read["content"] = content_of(message, where);
    return model::jinja::value_of_json(read);
}

model::jinja::Value message_of_text(const char* role, const std::string& content) {
    model::jinja::Dict message;
    message.set("role", role);
    message.set("content", content);
    return message;
}

bool is_of_system(const model::jinja::Value& message) {
    const std::string& role = message.dict().find(std::string_view("role"))->text();
    return role == "system" || role == "developer";
}

model::Conversation with_variables(Messages messages, const Json& line) {
    model::Conversation conversation{std::move(messages)};
    if (const Json& tools = value_of(line, "tools"); !tools.empty()) {
        for (const Json& tool : model::array_of(tools, "tools", "an array of objects"))
            if (!tool.is_object()) throw std::runtime_error("tools must be an array of objects");
        conversation.tools = model::jinja::value_of_json(tools);
    }
    const Json& variables = value_of(line, "chat_template_kwargs");
    if (!variables.is_null() && !variables.is_object())
        throw std::runtime_error("chat_template_kwargs must be an object: variables of the template");
    for (const auto& [name, value] : variables.items()) {
        for (const char* ours : {"messages", "tools", "add_generation_prompt", "continue_final_message"})
            if (name == ours)
                throw std::runtime_error("chat_template_kwargs: " + name +
                                         " cannot be set there; it follows from the line");
        conversation.variables.emplace_back(name, model::jinja::value_of_json(value));
    }
    return conversation;
}

} // namespace

std::string Chat::render(const model::Conversation& conversation) const {
    if (!chat_template) throw std::runtime_error("messages cannot be served: " + why_none);
    return chat_template->render(conversation);
}

Chat open_chat(const std::string& directory, const ChatTemplateOptions& options) {
    Chat chat = open_template(directory, options.name);
    if (options.is_needed && !chat.chat_template) throw BadOption("--chat: " + chat.why_none);
    if (options.date.empty()) return chat;
    if (!chat.chat_template || !chat.chat_template->has_date())
        throw BadOption("--chat-date has no effect: " +
                        (chat.chat_template ? "the chat template " + chat.chat_template->name() + " writes no date"
                                            : chat.why_none));
    try {
        chat.chat_template->set_date(options.date);
    } catch (const std::invalid_argument& error) {
        throw BadOption(std::string("--chat-date ") + error.what());
    }
    return chat;
}

model::Conversation conversation_of(const Json& line, const std::optional<std::string>& system) {
    const Json& list = model::array_of(line["messages"], "messages", "an array of {\"role\", \"content\"}");
    if (list.empty()) throw std::runtime_error("messages is empty");
    Messages messages;
    for (const Json& message : list)
        messages.push_back(message_of(message, fmt::format("messages[{}]: ", messages.size())));
    if (system && !is_of_system(messages.front()))
        messages.insert(messages.begin(), message_of_text("system", *system));
    return with_variables(std::move(messages), line);
}

model::Conversation conversation_of_prompt(const std::string& prompt, const std::optional<std::string>& system,
                                           const Json& line) {
    Messages messages;
    if (system) messages.push_back(message_of_text("system", *system));
    messages.push_back(message_of_text("user", prompt));
    return with_variables(std::move(messages), line);
}

} // namespace entrodraft::launch
