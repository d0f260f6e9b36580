// The target's chat template: see chat.h.
#include "launch/io/chat.h"

#include "launch/failure.h"
#include "model/checkpoint/bad_file.h"

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

} // namespace

std::string Chat::render(const std::vector<model::ChatMessage>& messages) const {
    if (!chat_template) throw std::runtime_error("messages cannot be served: " + why_none);
    try {
        return chat_template->render(messages);
    } catch (const std::invalid_argument& error) {
        throw std::runtime_error(error.what());
    }
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

} // namespace entrodraft::launch
