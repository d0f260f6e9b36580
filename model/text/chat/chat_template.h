// A checkpoint's chat template turns a conversation into the text of a prompt. This code runs the template (jinja.h).
// The text already has its special tokens, so tokenize it without those of the post-processor. Called by launch.
#pragma once

#include "model/text/chat/jinja.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

// The data of a request that templates see.
struct Conversation {
    jinja::Value messages;              // a list of dicts: role, content, and other fields that the template reads
    jinja::Value tools = jinja::None{}; // a list of dicts, or none
    jinja::Variables variables = {};    // further ones, by name: documents, enable_thinking, ..
};

class ChatTemplate {
  public:
    // Opens chat_template.jinja, else "chat_template" in tokenizer_config.json. Of several it takes the one named
    // "default", or "tool_use" if a conversation has tools. Nothing if the directory has neither. Throws BadFile.
    static std::optional<ChatTemplate> open(const std::filesystem::path& directory);
    // Returns the built-in template of this name, or the one in the file, with the directory's tokens. The directory's
    // own template does not matter. Throws std::invalid_argument with all names, and BadFile.
    static ChatTemplate named(std::string_view name_or_file, const std::filesystem::path& directory);
    // `name`: for messages. `tokens`: bos_token, eos_token, .. as variables. Throws jinja::TemplateError.
    ChatTemplate(std::string name, const std::string& text, jinja::Variables tokens);

    const std::string& name() const { return name_; }
    // Returns whether the template asks for today's date. The date is 26 Jul 2024 unless set, so that a text does not
    // change overnight. set_date takes a date in this form and throws std::invalid_argument.
    bool has_date() const { return has_date_; }
    void set_date(const std::string& date);

    // Returns the text up to the beginning of the assistant's answer. If the last message is the assistant's, returns
    // the text up to its end, to be continued. The text equals transformers' apply_chat_template with
    // add_generation_prompt or continue_final_message. Throws std::invalid_argument with the template's own words where
    // the template refuses the conversation, else with the line where it fails.
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

// Returns the names in the order of the documentation.
std::vector<std::string_view> chat_template_names();
// Returns the text of a built-in template; nothing if the name is not one.
std::optional<std::string_view> named_chat_template(std::string_view name);

} // namespace entrodraft::model
