// Rendering a conversation by its form: see chat_forms.h. The forms themselves are chat_forms.cpp.
#include "model/chat/chat_forms.h"
#include "model/utf8.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::model {

namespace {

using Role = ChatMessage::Role;

// What Python calls white space: the C0 controls that separate, and Unicode's spaces and line ends.
bool is_space(char32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string_view without_trailing_space(std::string_view text) {
    while (!text.empty()) {
        const std::size_t last = previous_code_point(text, text.size());
        if (!is_space(code_point_at(text, last).value)) break;
        text = text.substr(0, last);
    }
    return text;
}

std::string_view trimmed(std::string_view text) {
    text = without_trailing_space(text);
    while (!text.empty()) {
        const CodePoint first = code_point_at(text, 0);
        if (!is_space(first.value)) break;
        text.remove_prefix(first.n_bytes);
    }
    return text;
}

std::string_view without_leading_newlines(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view without_trailing_newlines(std::string_view text) {
    return text.substr(0, text.find_last_not_of('\n') + 1);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
    std::string result;
    std::size_t begin = 0;
    for (std::size_t at; (at = text.find(from, begin)) != std::string::npos; begin = at + from.size())
        result.append(text, begin, at - begin).append(to);
    text = result.append(text, begin);
}

std::string_view in_words(Role role) {
    return role == Role::system ? "system" : role == Role::user ? "user" : "assistant";
}

[[noreturn]] void refuse(const ChatForm& form, std::size_t message, const std::string& why) {
    throw std::invalid_argument(fmt::format("messages[{}]: the chat template {} {}", message, form.name, why));
}

// The last message of the user that is not a tool's answer; the last of all where there is none.
std::size_t last_question(std::span<const ChatMessage> messages) {
    for (std::size_t i = messages.size(); i-- > 0;) {
        const std::string& content = messages[i].content;
        if (messages[i].role == Role::user &&
            !(content.starts_with("<tool_response>") && content.ends_with("</tool_response>")))
            return i;
    }
    return messages.size() - 1;
}

// Stands at the end of a last message of the assistant, so that the text can be cut there. Whether its blank
// survives tells whether the form trims messages: as transformers finds out.
constexpr std::string_view kCut = "CUT_HERE ";

class Renderer {
  public:
    Renderer(const ChatForm& form, std::span<const ChatMessage> messages, const ChatTokens& tokens,
             std::string_view date)
        : form_(form), messages_(messages), tokens_(tokens), date_(date) {}

    std::string render() {
        check();
        last_question_ = last_question(messages_);
        const bool continues = messages_.back().role == Role::assistant;
        write(form_.start);
        const bool has_system = messages_.front().role == Role::system;
        if (!has_system && form_.default_system) write_turn(form_.system, *form_.default_system);
        for (std::size_t i = 0; i < messages_.size(); ++i) {
            if (i > 0) write(form_.between);
            write_message(i, continues && i + 1 == messages_.size());
        }
        if (continues)
            cut_for_continuing();
        else
            write(form_.generation);
        return std::move(out_);
    }

  private:
    bool system_in_user_turn() const {
        return form_.system_place == SystemPlace::first_user || form_.system_place == SystemPlace::last_user;
    }

    void check() const {
        if (messages_.empty()) throw std::invalid_argument("messages is empty");
        const bool has_system = messages_.front().role == Role::system;
        for (std::size_t i = 0; i < messages_.size(); ++i) {
            const Role role = messages_[i].role;
            const std::size_t invalid = first_invalid_utf8(messages_[i].content);
            if (invalid != std::string_view::npos)
                throw std::invalid_argument(fmt::format("messages[{}]: invalid UTF-8 at byte {}", i, invalid));
            if (role == Role::system && form_.system_place == SystemPlace::refused)
                refuse(form_, i, "takes no system message; put it into the user's");
            if (role == Role::system && i > 0 && form_.system_place != SystemPlace::anywhere)
                refuse(form_, i, "takes a system message before all others only");
            const std::size_t turn = i - (has_system ? 1 : 0);
            if (form_.alternates && role != Role::system && (role == Role::user) != (turn % 2 == 0))
                refuse(form_, i,
                       "needs user and assistant to take turns, the user first; this is from the " +
                           std::string(in_words(role)));
        }
        if (!has_system) return;
        if (messages_.size() == 1 && form_.alternates)
            refuse(form_, 0, "needs a message of the user after the system's");
        if (form_.system_place == SystemPlace::last_user && messages_.back().role != Role::user)
            refuse(form_, 0, "leaves the system message out where the last message is not the user's");
    }

    // Text of the form, its placeholders filled in.
    void write(std::string_view text) {
        for (std::size_t open; (open = text.find('{')) != std::string_view::npos;) {
            const std::size_t close = text.find('}', open);
            out_ += text.substr(0, open);
            out_ += value_of(text.substr(open + 1, close - open - 1));
            text.remove_prefix(close + 1);
        }
        out_ += text;
    }

    std::string_view value_of(std::string_view placeholder) const {
        if (placeholder == "date") return date_;
        const bool is_eos = placeholder == "eos";
        const std::optional<std::string>& token = is_eos ? tokens_.eos : tokens_.bos;
        if (token) return *token;
        if (placeholder == "bos?") return "";
        throw std::invalid_argument("the chat template " + std::string(form_.name) + " writes the " +
                                    (is_eos ? "eos" : "bos") +
                                    "_token, and tokenizer_config.json does not say what that is");
    }

    void write_turn(const ChatTurn& turn, std::string_view content) {
        write(turn.before);
        out_ += content;
        write(turn.after);
    }

    void write_message(std::size_t i, bool is_cut) {
        std::string content = messages_[i].content;
        if (is_cut) content += kCut;
        if (form_.halves_blank_lines && messages_[i].role != Role::system) replace_all(content, "\n\n", "\n");
        switch (messages_[i].role) {
        case Role::system:
            if (system_in_user_turn() || (form_.skips_empty_system && content.empty())) return;
            return write_turn(form_.system, form_.trim_system ? trimmed(content) : content);
        case Role::user:
            return write_turn(form_.user, user_content(i, content));
        case Role::assistant:
            return write_turn(form_.assistant, assistant_content(i, content));
        }
    }

    std::string user_content(std::size_t i, const std::string& content) const {
        std::string text(form_.trim_user == Trim::content ? trimmed(content) : content);
        const bool has_system = messages_.front().role == Role::system;
        const std::size_t host = form_.system_place == SystemPlace::first_user ? 1 : messages_.size() - 1;
        if (has_system && system_in_user_turn() && i == host)
            text =
                std::string(form_.system.before) + messages_.front().content + std::string(form_.system.after) + text;
        return form_.trim_user == Trim::turn ? std::string(trimmed(text)) : text;
    }

    std::string assistant_content(std::size_t i, std::string_view content) const {
        if (form_.trim_assistant != Trim::none) content = trimmed(content);
        switch (form_.reasoning) {
        case Reasoning::kept:
            break;
        case Reasoning::cut:
            content = after_reasoning(content);
            break;
        case Reasoning::qwen3:
            return as_qwen3_lays_out(i, content);
        }
        return std::string(content);
    }

    static std::string_view after_reasoning(std::string_view content) {
        const std::size_t end = content.rfind(kEndOfReasoning);
        return end == std::string_view::npos ? content : content.substr(end + kEndOfReasoning.size());
    }

    std::string as_qwen3_lays_out(std::size_t i, std::string_view content) const {
        constexpr std::string_view kBegin = "<think>";
        std::string_view reasoning;
        if (const std::size_t end = content.find(kEndOfReasoning); end != std::string_view::npos) {
            reasoning = without_trailing_newlines(content.substr(0, end));
            const std::size_t begin = reasoning.rfind(kBegin);
            if (begin != std::string_view::npos) reasoning.remove_prefix(begin + kBegin.size());
            reasoning = without_leading_newlines(reasoning);
            content = without_leading_newlines(after_reasoning(content));
        }
        const bool is_last = i + 1 == messages_.size();
        if (i <= last_question_ || (!is_last && reasoning.empty())) return std::string(content);
        return "<think>\n" + std::string(without_trailing_newlines(reasoning)) + "\n</think>\n\n" +
               std::string(without_leading_newlines(content));
    }

    void cut_for_continuing() {
        const std::string_view mark = kCut.substr(0, kCut.size() - 1);
        const std::size_t cut = out_.rfind(mark);
        const bool keeps_space = out_.compare(cut, kCut.size(), kCut) == 0;
        out_.resize(cut);
        const std::string_view text = without_trailing_space(out_);
        const bool is_whole = text.ends_with(trimmed(messages_.back().content));
        if (!keeps_space) out_.resize(text.size());
        if (!is_whole)
            refuse(form_, messages_.size() - 1, "rewrites this message, so that it cannot be continued as it is");
    }

    static constexpr std::string_view kEndOfReasoning = "</think>";

    const ChatForm& form_;
    std::span<const ChatMessage> messages_;
    const ChatTokens& tokens_;
    std::string_view date_;
    std::size_t last_question_ = 0;
    std::string out_;
};

} // namespace

std::string render_chat(const ChatForm& form, std::span<const ChatMessage> messages, const ChatTokens& tokens,
                        std::string_view date) {
    return Renderer(form, messages, tokens, date).render();
}

} // namespace entrodraft::model
