// Splits the text that a model writes in a chat: reasoning between <think> and </think>, tool calls, and the rest. Tool
// calls may have the forms of Qwen and Hermes (<tool_call>), Llama 3 (a JSON object) and Mistral (a JSON list). Pure.
#pragma once

#include "launch/io/json_line.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

struct ToolCall {
    std::string name;
    std::string arguments; // a JSON object, compact
};

struct MessageParts {
    std::string reasoning;
    std::string content;
    std::vector<ToolCall> calls;
};

struct MessageForm {
    bool begins_in_reasoning = false;    // the prompt ends with <think>
    std::vector<std::string> tool_names; // that may be called; empty: text is never a call
    bool one_call = false;               // calls after the first are left out
};

// Splits a whole text.
MessageParts parts_of(std::string_view text, const MessageForm& form);

// Splits a text as it comes. What may become a call or a mark is held back.
class MessageStream {
  public:
    explicit MessageStream(MessageForm form)
        : form_(std::move(form)), reasons_(form_.begins_in_reasoning), skips_blanks_(reasons_) {}

    // Returns the reasoning and the content that are certain by now. They have no calls.
    MessageParts push(std::string_view piece);
    // Returns what was held back: calls, or content that was none.
    MessageParts finish();
    // Bytes at the end of what has come that are held back.
    std::size_t n_held() const { return held_.size(); }

  private:
    MessageForm form_;
    bool reasons_;
    bool skips_blanks_;      // at the beginning of reasoning, and of what follows it
    bool has_begun_ = false; // content has begun that is no call
    bool holds_ = false;     // what has come may be calls, up to the end
    std::string held_;
};

} // namespace entrodraft::launch
