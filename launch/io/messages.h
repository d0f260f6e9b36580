// The conversation of an input line: "messages", checked field by field. Private to this module, as json_line.h is.
//
// Knows no template: what one of them refuses is said by chat.h. Called by requests.
#pragma once

#include "launch/io/json_line.h"
#include "model/chat/chat_template.h"

#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

// The conversation of a line that has "messages"; `system` begins it where it brings no system message itself.
// Throws std::runtime_error that names the message and its field. Local.
std::vector<model::ChatMessage> messages_of(const Json& line, const std::optional<std::string>& system);

// One message of the user, after `system`. Local.
std::vector<model::ChatMessage> messages_of_prompt(const std::string& prompt, const std::optional<std::string>& system);

} // namespace entrodraft::launch
