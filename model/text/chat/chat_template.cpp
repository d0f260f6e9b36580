// Finds a checkpoint's chat template and runs it on a conversation: see chat_template.h.
#include "model/text/chat/chat_template.h"

#include "model/files/bad_file.h"
#include "model/files/gguf_file.h"
#include "model/files/json_file.h"
#include "model/files/utf8.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::model {

namespace {

namespace fs = std::filesystem;
using jinja::Type;
using jinja::Value;
using nlohmann::json;

constexpr std::size_t kMaxTemplateBytes = 1 << 20;
// This tag follows a last message of the assistant, so that the text can be cut there. If its blank is lost, the
// template trims messages: transformers finds this out in the same way.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

// Returns a token given as text or as {"content": text}; nothing where it is null.
std::optional<std::string> token_text(const json& token, const std::string& name, const fs::path& file) {
    if (token.is_null()) return std::nullopt;
    const json& text = token.is_object() && token.contains("content") ? token["content"] : token;
    if (!text.is_string())
        throw BadFile(file.string() + ": field " + name + " must be a string or an object with a string \"content\"");
    return text.get<std::string>();
}

// Reads bos_token, eos_token and all other fields whose name ends in _token. tokenizer_config.json comes first;
// special_tokens_map.json counts only for tokens that it does not mention, not even as null.
jinja::Variables read_tokens(const fs::path& directory, const json& config) {
    const fs::path config_file = directory / "tokenizer_config.json", map_file = directory / "special_tokens_map.json";
    jinja::Variables tokens;
    const auto add = [&](const json& object, const fs::path& file, const json& known) {
        for (const auto& [name, token] : object.items()) {
            const bool is_flag = token.is_boolean() || token.is_number(); // add_bos_token, split_special_tokens
            if (!name.ends_with("_token") || known.contains(name) || (is_flag && name.starts_with("add_"))) continue;
            if (const auto text = token_text(token, name, file)) tokens.emplace_back(name, Value(*text));
        }
    };
    add(config, config_file, json::object());
    if (!config.contains("bos_token") || !config.contains("eos_token"))
        add(read_optional_object(map_file), map_file, config);
    return tokens;
}

// Returns tokenizer_config.json, or a GGUF file's metadata in its place.
json read_tokenizer_config(const fs::path& directory) {
    const auto path = gguf_file_of(directory);
    if (!path) return read_optional_object(directory / "tokenizer_config.json");
    const json metadata = open_gguf(*path).metadata;
    json config = json::object();
    const auto value = [&](const char* name) { return metadata.value(name, json()); };
    config["chat_template"] = value("tokenizer.chat_template");
    const json tokens = value("tokenizer.ggml.tokens");
    for (const char* name : {"bos", "eos"})
        if (const json id = value(("tokenizer.ggml." + std::string(name) + "_token_id").c_str());
            id.is_number_unsigned() && id < tokens.size())
            config[name + std::string("_token")] = tokens[id.get<std::size_t>()];
    return config;
}

struct TemplateTexts {
    fs::path file;
    std::string text;
    std::optional<std::string> for_tools;
};

TemplateTexts template_of_several(const json& list, const fs::path& file) {
    TemplateTexts found{file, {}, {}};
    bool has_default = false;
    for (const json& entry : list) {
        if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") ||
            !entry["name"].is_string() || !entry["template"].is_string())
            throw BadFile(file.string() + ": each entry of chat_template must have a name and a template, as strings");
        if (entry["name"] == "tool_use") found.for_tools = entry["template"].get<std::string>();
        if (entry["name"] != "default") continue;
        found.text = entry["template"].get<std::string>();
        has_default = true;
    }
    if (!has_default) throw BadFile(file.string() + ": chat_template has no entry named default");
    return found;
}

std::string read_template_file(const fs::path& file) {
    std::string text = read_text_file(file, kMaxTemplateBytes);
    const std::size_t invalid = first_invalid_utf8(text);
    if (invalid != std::string_view::npos)
        throw BadFile(fmt::format("{}: invalid UTF-8 at byte {}", file.string(), invalid));
    return text;
}

std::optional<TemplateTexts> read_template(const fs::path& directory, const json& config) {
    if (const fs::path file = directory / "chat_template.jinja"; file_exists(file))
        return TemplateTexts{file, read_template_file(file), {}};
    const fs::path file = directory / "tokenizer_config.json";
    const auto found = config.find("chat_template");
    if (found == config.end() || found->is_null()) return std::nullopt;
    if (found->is_array()) return template_of_several(*found, file);
    if (!found->is_string()) throw BadFile(file.string() + ": field chat_template must be a string or a list");
    return TemplateTexts{file, found->get<std::string>(), {}};
}

// Throws BadFile where the text is not a template.
template <typename Make> auto in_file(const fs::path& file, Make make) {
    try {
        return make();
    } catch (const jinja::TemplateError& error) {
        throw BadFile(fmt::format("{}: the chat template cannot be read, {}; --chat-template takes another",
                                  file.string(), error.what()));
    }
}

void check_size(const fs::path& file, const std::string& text) {
    if (text.size() > kMaxTemplateBytes)
        throw BadFile(fmt::format("{}: the chat template has more than {} bytes", file.string(), kMaxTemplateBytes));
}

// Reads a date such as "26 Jul 2024"; returns nothing if it is not one.
std::optional<std::tm> read_date(const std::string& text) {
    static constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
    int day = 0, year = 0, n_read = 0;
    char month[4] = "";
    if (std::sscanf(text.c_str(), "%2d %3[A-Za-z] %4d%n", &day, month, &year, &n_read) != 3) return std::nullopt;
    const std::size_t at = kMonths.find(month);
    if (static_cast<std::size_t>(n_read) != text.size() || at % 3 != 0 || at == std::string_view::npos)
        return std::nullopt;
    std::tm date{};
    date.tm_mday = day;
    date.tm_mon = static_cast<int>(at / 3);
    date.tm_year = year - 1900;
    std::tm normal = date;
    if (timegm(&normal) == -1 || normal.tm_mday != day || year < 1900) return std::nullopt;
    return normal; // with the day of the week
}

void check_utf8(const Value& value, const std::string& where) {
    if (value.is(Type::string)) {
        const std::size_t invalid = first_invalid_utf8(value.text());
        if (invalid == std::string_view::npos) return;
        throw std::invalid_argument(fmt::format("{}: invalid UTF-8 at byte {}", where, invalid));
    }
    if (value.is(Type::list))
        for (std::size_t i = 0; i < value.list().items.size(); ++i)
            check_utf8(value.list().items[i], fmt::format("{}[{}]", where, i));
    if (value.is(Type::dict))
        for (const auto& [key, part] : value.dict().entries) {
            check_utf8(key, where);
            check_utf8(part, key.is(Type::string) ? where + "." + key.text() : where);
        }
}

const Value* text_field(const Value& message, std::string_view name) {
    return message.is(Type::dict) ? message.dict().find(name) : nullptr;
}

bool is_answer(const Value& message) {
    const Value* role = text_field(message, "role");
    return role && role->is(Type::string) && role->text() == "assistant";
}

// Adds the other names that templates know for a message's reasoning, as transformers does.
Value with_reasoning_names(const Value& message) {
    if (!message.is(Type::dict)) return message;
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
        const Value* found = message.dict().find(std::string_view(name));
        if (!found || found->is(Type::none)) continue;
        jinja::Dict named;
        named.set(Value("thinking"), *found);
        for (const auto& [key, value] : message.dict().entries)
            named.set(key, value);
        named.set(Value("reasoning_content"), *found);
        return Value(std::move(named));
    }
    return message;
}

// The message with the tag after its text, and that text.
struct Continued {
    Value message;
    std::string text;
};

Continued with_tag(const Value& message, std::size_t i) {
    const auto refuse = [&]() -> Value {
        throw std::invalid_argument(fmt::format(
            "messages[{}]: the assistant's last message is continued, and this one has no text in content", i));
    };
    const Value* content = text_field(message, "content");
    jinja::Dict changed = message.dict();
    if (content && content->is(Type::string)) {
        changed.set(Value("content"), Value(content->text() + std::string(kContinueTag)));
        return {Value(std::move(changed)), content->text()};
    }
    if (!content || !content->is(Type::list)) refuse();
    std::vector<Value> parts = content->list().items;
    const auto last = std::find_if(parts.rbegin(), parts.rend(), [](const Value& part) {
        const Value* text = text_field(part, "text");
        return text && text->is(Type::string);
    });
    if (last == parts.rend()) refuse();
    jinja::Dict part = last->dict();
    std::string text = part.find(std::string_view("text"))->text();
    part.set(Value("text"), Value(text + std::string(kContinueTag)));
    *last = Value(std::move(part));
    changed.set(Value("content"), Value(std::move(parts)));
    return {Value(std::move(changed)), std::move(text)};
}

// Returns the rendered text up to the tag.
std::string cut_at_tag(std::string text, const std::string& continued, const std::string& name) {
    const std::size_t at = text.rfind(kContinueTag.substr(0, kContinueTag.size() - 1));
    if (at == std::string::npos || text.find(jinja::stripped(continued)) == std::string::npos)
        throw std::invalid_argument("the chat template " + name +
                                    " rewrites the last message of the assistant, so that it cannot be continued");
    const bool keeps_blank = text.compare(at, kContinueTag.size(), kContinueTag) == 0;
    text.resize(at);
    return keeps_blank ? text : std::string(jinja::stripped(text, {}, jinja::Side::right));
}

} // namespace

std::optional<ChatTemplate> ChatTemplate::open(const fs::path& directory) {
    const json config = read_tokenizer_config(directory);
    const std::optional<TemplateTexts> found = read_template(directory, config);
    if (!found) return std::nullopt;
    check_size(found->file, found->text);
    return in_file(found->file, [&] {
        ChatTemplate made("of " + found->file.string(), found->text, read_tokens(directory, config));
        if (!found->for_tools) return made;
        check_size(found->file, *found->for_tools);
        made.tool_template_.emplace(*found->for_tools);
        return made;
    });
}

ChatTemplate ChatTemplate::named(std::string_view name_or_file, const fs::path& directory) {
    const auto tokens = read_tokens(directory, read_tokenizer_config(directory));
    const std::string name(name_or_file);
    if (const auto text = named_chat_template(name)) return ChatTemplate(name, std::string(*text), tokens);
    if (name.find('/') == std::string::npos && !name.ends_with(".jinja"))
        throw std::invalid_argument(
            fmt::format("there is no chat template named {}; there are {}, or give a .jinja file", in_quotes(name),
                        fmt::join(chat_template_names(), ", ")));
    return in_file(name, [&] { return ChatTemplate("of " + name, read_template_file(name), tokens); });
}

ChatTemplate::ChatTemplate(std::string name, const std::string& text, jinja::Variables tokens)
    : name_(std::move(name)), template_(text), tokens_(std::move(tokens)), now_(*read_date("26 Jul 2024")),
      has_date_(text.find("strftime_now") != std::string::npos || text.find("date_string") != std::string::npos),
      reads_content_(text.find("content") != std::string::npos) {}

void ChatTemplate::set_date(const std::string& date) {
    const std::optional<std::tm> read = read_date(date);
    if (!read) throw std::invalid_argument("must be a date such as 26 Jul 2024, not " + in_quotes(date));
    date_ = date;
    now_ = *read;
}

std::string ChatTemplate::render(const Conversation& conversation) const {
    if (!conversation.messages.is(Type::list) || conversation.messages.list().items.empty())
        throw std::invalid_argument("messages is empty");
    check_utf8(conversation.messages, "messages");
    check_utf8(conversation.tools, "tools");
    jinja::Variables variables = tokens_;
    const auto set = [&](const std::string& name, const Value& value) {
        std::erase_if(variables, [&](const auto& known) { return known.first == name; });
        variables.emplace_back(name, value);
    };
    if (!date_.empty()) set("date_string", Value(date_));
    set("documents", Value(jinja::None{}));
    for (const auto& [name, value] : conversation.variables) {
        check_utf8(value, name);
        set(name, value);
    }
    std::vector<Value> messages = conversation.messages.list().items;
    std::ranges::transform(messages, messages.begin(), with_reasoning_names);
    const bool continues = is_answer(messages.back());
    std::string continued;
    if (continues) {
        auto [message, text] = with_tag(messages.back(), messages.size() - 1);
        messages.back() = std::move(message);
        continued = std::move(text);
        if (!reads_content_)
            throw std::invalid_argument("the chat template " + name_ +
                                        " reads no content, so that none can be continued");
    }
    set("messages", Value(std::move(messages)));
    set("tools", conversation.tools);
    set("add_generation_prompt", Value(!continues));
    const bool has_tools = tool_template_ && !conversation.tools.is(Type::none);
    try {
        std::string text = (has_tools ? *tool_template_ : template_).render(variables, now_);
        return continues ? cut_at_tag(std::move(text), continued, name_) : text;
    } catch (const jinja::RaisedByTemplate& error) {
        throw std::invalid_argument(
            fmt::format("the chat template {} refuses this conversation: {}", name_, error.what()));
    } catch (const jinja::TemplateError& error) {
        throw std::invalid_argument(
            fmt::format("the chat template {} fails at {}; --chat-template takes another, and a "
                        "prompt needs none",
                        name_, error.what()));
    }
}

} // namespace entrodraft::model
