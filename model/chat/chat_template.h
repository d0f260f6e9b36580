// A checkpoint's chat template: turns a conversation into the text of a prompt.
//
// Templates are programs in a template language; none is run here. The text of a checkpoint's template is recognised
// as one of the named forms (chat_forms.h), or refused with its first line. The rendered text holds its special
// tokens itself: tokenize it without the post-processor's. Called by launch.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

struct ChatMessage {
    enum class Role { system, user, assistant };
    Role role = Role::user;
    std::string content; // UTF-8
};

// The texts of the tokens that templates write.
struct ChatTokens {
    std::optional<std::string> bos;
    std::optional<std::string> eos;
};

struct ChatForm;

class ChatTemplate {
  public:
    // Of chat_template.jinja, else of "chat_template" in tokenizer_config.json (the one named "default" of several).
    // Nothing where the directory has neither. Throws BadFile where the template is unknown or a file is bad. Local.
    static std::optional<ChatTemplate> open(const std::filesystem::path& directory);
    // The form of this name with the directory's tokens, whatever its template. Throws std::invalid_argument with all
    // names, and BadFile. Local.
    static ChatTemplate named(std::string_view name, const std::filesystem::path& directory);
    ChatTemplate(const ChatForm& form, ChatTokens tokens);

    std::string_view name() const;
    // Whether the text holds a date: this one, "26 Jul 2024" unless set, so that a text does not change overnight.
    bool has_date() const;
    void set_date(std::string date) { date_ = std::move(date); }

    // The text up to where the assistant's answer begins; after a last message of the assistant, up to its end, to be
    // continued. Equal to transformers' apply_chat_template with add_generation_prompt or continue_final_message.
    // What this form cannot say is refused, also where a template would drop it without a word.
    // Throws std::invalid_argument that names the message. Local.
    std::string render(std::span<const ChatMessage> messages) const;

  private:
    const ChatForm* form_;
    ChatTokens tokens_;
    std::string date_ = "26 Jul 2024";
};

// In the order of the documentation.
std::vector<std::string_view> chat_form_names();

// The named form that a template's text is, or nothing. Line ends, and line ends after it, do not matter. Local.
std::optional<std::string_view> recognize_chat_template(std::string_view text);

} // namespace entrodraft::model
