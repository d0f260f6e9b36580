// The target's chat template, which makes prompts of conversations; or why there is none.
//
// How a template renders is the model module's affair, what a line's messages are that of messages.h. Called by
// model_pair.
#pragma once

#include "launch/cli/options.h"
#include "model/chat/chat_template.h"

#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

// A template, or why there is none: that is no failure until a conversation comes.
struct Chat {
    std::optional<model::ChatTemplate> chat_template;
    std::string why_none;

    // The prompt's text, special tokens included. Throws std::runtime_error with the reason. Local.
    std::string render(const std::vector<model::ChatMessage>& messages) const;
};

// The template that `options` name, else that of the target in `directory`. Throws BadOption where there is none
// although --chat needs one, and where an option does not fit. Local.
Chat open_chat(const std::string& directory, const ChatTemplateOptions& options);

} // namespace entrodraft::launch
