// Conversations: "messages", "tools" and "chat_template_kwargs" of an input line, and the target's chat template, which
// turns them into prompts. Private to this module, like json_line.h. The model module renders templates. Called by
// model_pair and requests.
#pragma once

#include "launch/cli/options.h"
#include "launch/io/json_line.h"
#include "model/text/chat/chat_template.h"

#include <optional>
#include <string>

namespace entrodraft::launch {

// A template, or the reason why there is none. A missing template is no failure until a conversation comes.
struct Chat {
    std::optional<model::ChatTemplate> chat_template;
    std::string why_none;

    // Returns the prompt's text, with special tokens. Throws std::exception with the reason.
    std::string render(const model::Conversation& conversation) const;
};

// Opens the template that `options` name, or else the target's in `directory`. Throws BadOption if there is none
// although --chat needs one, and if an option does not fit.
Chat open_chat(const std::string& directory, const ChatTemplateOptions& options);

// Returns the conversation of a line that has "messages". `system` begins it unless the line has its own system
// message. Throws std::runtime_error that names the message and its field.
model::Conversation conversation_of(const Json& line, const std::optional<std::string>& system);

// Returns one message of the user, after `system`, with the tools and variables of the line, if there is one.
model::Conversation conversation_of_prompt(const std::string& prompt, const std::optional<std::string>& system,
                                           const Json& line = Json::object());

} // namespace entrodraft::launch
