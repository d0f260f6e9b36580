// Finding and recognising a checkpoint's chat template: see chat_template.h. No template is run.
#include "model/chat/chat_template.h"

#include "model/chat/chat_forms.h"
#include "model/chat/known_chat_templates.h"
#include "model/checkpoint/bad_file.h"
#include "model/checkpoint/json_file.h"
#include "model/utf8.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <stdexcept>
#include <system_error>

namespace entrodraft::model {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kMaxTemplateBytes = 1 << 20;

std::uint64_t fnv1a(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3;
    }
    return hash;
}

// The text without what the template language itself passes over: the difference of \r\n and \n, one line end at the
// end, and one more after a closing %}.
std::string significant_part(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool ends_line = text[i] == '\r';
        if (ends_line && i + 1 < text.size() && text[i + 1] == '\n') continue;
        result += ends_line ? '\n' : text[i];
    }
    if (result.ends_with('\n')) result.pop_back();
    if (result.ends_with("%}\n")) result.pop_back();
    return result;
}

std::string all_names() {
    return fmt::format("{}", fmt::join(chat_form_names(), ", "));
}

// A token given as text or as {"content": text}; nothing where it is null or missing.
std::optional<std::string> token_of(const json& object, const char* name, const fs::path& file) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) return std::nullopt;
    const json* text = &*found;
    if (text->is_object() && text->contains("content")) text = &(*text)["content"];
    if (!text->is_string())
        throw BadFile(file.string() + ": field " + name + " must be a string or an object with a string \"content\"");
    return text->get<std::string>();
}

// tokenizer_config.json counts; special_tokens_map.json where that says nothing of a token, not even null.
ChatTokens read_tokens(const fs::path& directory, const json& config) {
    const fs::path config_file = directory / "tokenizer_config.json";
    const fs::path map_file = directory / "special_tokens_map.json";
    const json map =
        config.contains("bos_token") && config.contains("eos_token") ? json::object() : read_optional_object(map_file);
    const auto token = [&](const char* name) {
        return config.contains(name) ? token_of(config, name, config_file) : token_of(map, name, map_file);
    };
    return {token("bos_token"), token("eos_token")};
}

struct TemplateText {
    std::string text;
    fs::path file;
};

std::optional<TemplateText> default_of_several(const json& list, const fs::path& file) {
    for (const json& entry : list) {
        if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") ||
            !entry["name"].is_string() || !entry["template"].is_string())
            throw BadFile(file.string() + ": each entry of chat_template must have a name and a template, as strings");
        if (entry["name"] == "default") return TemplateText{entry["template"].get<std::string>(), file};
    }
    throw BadFile(file.string() + ": chat_template has no entry named default");
}

std::optional<TemplateText> read_template(const fs::path& directory, const json& config) {
    if (const fs::path file = directory / "chat_template.jinja"; file_exists(file)) {
        std::string text = read_text_file(file, kMaxTemplateBytes);
        const std::size_t invalid = first_invalid_utf8(text);
        if (invalid != std::string_view::npos)
            throw BadFile(fmt::format("{}: invalid UTF-8 at byte {}", file.string(), invalid));
        return TemplateText{std::move(text), file};
    }
    const fs::path file = directory / "tokenizer_config.json";
    const auto found = config.find("chat_template");
    if (found == config.end() || found->is_null()) return std::nullopt;
    if (found->is_array()) return default_of_several(*found, file);
    if (!found->is_string()) throw BadFile(file.string() + ": field chat_template must be a string or a list");
    return TemplateText{found->get<std::string>(), file};
}

std::string_view first_line(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    return text.substr(0, text.find_first_of("\r\n"));
}

} // namespace

std::optional<ChatTemplate> ChatTemplate::open(const fs::path& directory) {
    const json config = read_optional_object(directory / "tokenizer_config.json");
    const std::optional<TemplateText> found = read_template(directory, config);
    if (!found) return std::nullopt;
    if (found->text.size() > kMaxTemplateBytes)
        throw BadFile(
            fmt::format("{}: the chat template has more than {} bytes", found->file.string(), kMaxTemplateBytes));
    const std::optional<std::string_view> name = recognize_chat_template(found->text);
    if (!name)
        throw BadFile(found->file.string() + ": the chat template that begins with " +
                      in_quotes(first_line(found->text)) +
                      " is none that is known here; --chat-template NAME takes one of " + all_names());
    return ChatTemplate(*find_chat_form(*name), read_tokens(directory, config));
}

ChatTemplate ChatTemplate::named(std::string_view name, const fs::path& directory) {
    const ChatForm* form = find_chat_form(name);
    if (form == nullptr)
        throw std::invalid_argument("there is no chat template named " + in_quotes(name) + "; there are " +
                                    all_names());
    return ChatTemplate(*form, read_tokens(directory, read_optional_object(directory / "tokenizer_config.json")));
}

ChatTemplate::ChatTemplate(const ChatForm& form, ChatTokens tokens) : form_(&form), tokens_(std::move(tokens)) {}

std::string_view ChatTemplate::name() const {
    return form_->name;
}

bool ChatTemplate::has_date() const {
    return form_->system.before.find("{date}") != std::string_view::npos;
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages) const {
    return render_chat(*form_, messages, tokens_, date_);
}

std::vector<std::string_view> chat_form_names() {
    std::vector<std::string_view> names;
    for (const ChatForm& form : chat_forms())
        names.push_back(form.name);
    return names;
}

std::optional<std::string_view> recognize_chat_template(std::string_view text) {
    const std::string significant = significant_part(text);
    const std::uint64_t hash = fnv1a(significant);
    for (const KnownChatTemplate& known : kKnownChatTemplates)
        if (known.hash == hash && known.n_bytes == significant.size()) return known.form;
    return std::nullopt;
}

} // namespace entrodraft::model
