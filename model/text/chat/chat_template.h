// A checkpoint's chat template: turns a conversation into the text of a prompt, by running the template (jinja.h). The
// text holds its special tokens itself: tokenize it without the post-processor's. Called by launch.
#pragma once

#include "model/text/chat/jinja.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

// What templates see of a request.
struct Conversation {
    jinja::Value messages;              // a list of dicts: role, content, and whatever else the template reads
    jinja::Value tools = jinja::None{}; // a list of dicts, or none
    jinja::Variables variables = {};    // further ones, by name: documents, enable_thinking, ..
};

class ChatTemplate {
  public:
    // Of chat_template.jinja, else of "chat_template" in tokenizer_config.json: the one named "default" of several, or
    // "tool_use" where a conversation brings tools. Nothing where the directory has neither. Throws BadFile.
    static std::optional<ChatTemplate> open(const std::filesystem::path& directory);
    // The built-in one of this name, or that in the file, with the directory's tokens, whatever its template. Throws
    // std::invalid_argument with all names, and BadFile.
    static ChatTemplate named(std::string_view name_or_file, const std::filesystem::path& directory);
    // `name`: in messages. `tokens`: bos_token, eos_token, .. as variables. Throws jinja::TemplateError.
    ChatTemplate(std::string name, const std::string& text, jinja::Variables tokens);

    const std::string& name() const { return name_; }
    // Whether the template asks for today's date. That is 26 Jul 2024 unless set, so that a text does not change
    // overnight; set_date takes one so written, throws std::invalid_argument.
    bool has_date() const { return has_date_; }
    void set_date(const std::string& date);

    // The text up to where the assistant's answer begins; after a last message of the assistant, up to its end, to be
    // continued. Equal to transformers' apply_chat_template with add_generation_prompt or continue_final_message.
    // Throws std::invalid_argument: with the template's own words where it refuses the conversation, else with the line
    // where it fails.
    std::string render(const Conversation& conversation) const;

  private:
    std::string name_;
    jinja::Template template_;
    std::optional<jinja::Template> tool_template_;
    jinja::Variables tokens_;
    std::string date_; // empty: not set
    std::tm now_;
    bool has_date_ = false;
    bool reads_content_ = false;
};

// In the order of the documentation.
std::vector<std::string_view> chat_template_names();
// The text of a built-in one; nothing where there is none of this name.
std::optional<std::string_view> named_chat_template(std::string_view name);

} // namespace entrodraft::model
