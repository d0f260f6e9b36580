// The chat forms known by name: what is around each message of a conversation, as data, and the one function
// that renders them all. Not a template language, and it reads no files: chat_template.h recognises which form a
// checkpoint's template is. Called by chat_template.cpp only.
#pragma once

#include "model/chat/chat_template.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace entrodraft::model {

// Where the system message is.
enum class SystemPlace {
    refused,    // the form has none
    anywhere,   // a turn of its own, wherever it comes
    first,      // a turn of its own, before all others only
    first_user, // inside the first user turn
    last_user,  // inside the last user turn
};

enum class Trim {
    none,
    content, // white space at both ends of each message goes
    turn,    // the same of the whole turn, a system message inside it included
};

// What becomes of <think>...</think> in messages of the assistant.
enum class Reasoning {
    kept,
    cut,   // all up to the last </think>
    qwen3, // kept after the last user message only, where it is laid out anew
};

// In the texts {bos} and {eos} are the checkpoint's tokens, which it must have; {bos?} is empty where it has none;
// {date} is the date of today's-date headers.
struct ChatTurn {
    std::string_view before;
    std::string_view after;
};

struct ChatForm {
    std::string_view name;
    std::string_view start = ""; // of the whole text
    SystemPlace system_place = SystemPlace::anywhere;
    ChatTurn system = {}; // inside a user turn: what is around it there
    ChatTurn user;
    ChatTurn assistant;
    std::string_view generation = ""; // after the last message, for the assistant to answer
    std::optional<std::string_view> default_system = std::nullopt; // where the conversation begins with none
    Trim trim_user = Trim::none;
    Trim trim_assistant = Trim::none;
    bool trim_system = false;
    bool alternates = false; // user and assistant have to take turns
    bool skips_empty_system = false;
    bool halves_blank_lines = false; // of user and assistant: \n\n becomes \n
    std::string_view between = "";   // two messages
    Reasoning reasoning = Reasoning::kept;
};

std::span<const ChatForm> chat_forms();

// Null where no form has this name. Local.
const ChatForm* find_chat_form(std::string_view name);

// The conversation as text, see ChatTemplate::render. Throws std::invalid_argument. Local.
std::string render_chat(const ChatForm& form, std::span<const ChatMessage> messages, const ChatTokens& tokens,
                        std::string_view date);

} // namespace entrodraft::model
