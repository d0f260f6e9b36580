// Conversations: "messages", "tools" and "chat_template_kwargs" of an input line, and the target's chat template, which
// makes prompts of them; or why there is none. Private to this module, as json_line.h is.
//
// How a template renders is the model module's affair. Called by model_pair and requests.
#pragma once

#include "launch/cli/options.h"
#include "launch/io/json_line.h"
#include "model/text/chat/chat_template.h"

#include <optional>
#include <string>

namespace entrodraft::launch {

// A template, or why there is none: that is not a failure until a conversation comes.
struct Chat {
    std::optional<model::ChatTemplate> chat_template;
    std::string why_none;

    // The prompt's text, special tokens included. Throws std::exception with the reason.
    std::string render(const model::Conversation& conversation) const;
};

// The template that `options` name, else that of the target in `directory`. Throws BadOption where there is none
// although --chat needs one, and where an option does not fit.
Chat open_chat(const std::string& directory, const ChatTemplateOptions& options);

// The conversation of a line that has "messages"; `system` begins it where it brings no system message itself.
// Throws std::runtime_error that names the message and its field.
model::Conversation conversation_of(const Json& line, const std::optional<std::string>& system);

// One message of the user, after `system`; tools and variables of the line, where there is one.
model::Conversation conversation_of_prompt(const std::string& prompt, const std::optional<std::string>& system,
                                           const Json& line = Json::object());

} // namespace entrodraft::launch
