// See special_tokens.h.
#include "model/text/tokenizer/special_tokens.h"

#include <algorithm>
#include <optional>
#include <set>

#include "model/files/json_file.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

using nlohmann::json;
using std::filesystem::path;

constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

void take_named(const json& file, const path& where, SpecialTokens& tokens) {
    for (const auto& [key, value] : file.items()) {
        const std::string what = where.string() + ": '" + key + "'";
        const bool is_standard = std::ranges::find(kNamedTokens, key) != std::end(kNamedTokens);
        if (key == "additional_special_tokens" || key == "extra_special_tokens") {
            if (value.is_null()) continue;
            if (!value.is_array() && !value.is_object()) throw BadFile(what + " is not a list");
            for (const json& token : value)
                tokens.extra.push_back(added_token(token, true, what));
        } else if (is_standard) {
            if (value.is_null()) {
                tokens.named.erase(key);
            } else {
                tokens.named[key] = added_token(value, true, what);
            }
        } else if (key.ends_with("_token") && value.is_string()) {
            tokens.extra.push_back(added_token(value, true, what));
        }
    }
}

bool is_special(const SpecialTokens& tokens, const json& content) {
    const auto has = [&](const json& token) { return token["content"] == content; };
    return std::any_of(tokens.named.begin(), tokens.named.end(),
                       [&](const auto& named) { return has(named.second); }) ||
           std::any_of(tokens.extra.begin(), tokens.extra.end(), has);
}

} // namespace

json added_token(const json& value, bool special_if_bare, const std::string& what) {
    if (!value.is_string() && !value.is_object()) throw BadFile(what + " is neither a string nor an object");
    json token = value.is_string() ? json::object({{"content", value}}) : value;
    string_field(token, "content", what);
    for (const char* flag : {"single_word", "lstrip", "rstrip"})
        bool_field(token, flag, false, what);
    const bool is_special = bool_field(token, "special", special_if_bare, what);
    token["normalized"] = bool_field(token, "normalized", !is_special, what);
    token["special"] = is_special;
    return token;
}

SpecialTokens read_special_tokens(const path& directory,
                                  std::initializer_list<std::pair<const char*, std::string>> defaults) {
    SpecialTokens tokens;
    for (const auto& [name, content] : defaults)
        tokens.named[name] = added_token(content, true, name);
    const path config_path = directory / "tokenizer_config.json";
    const json config = read_optional_object(config_path);
    take_named(config, config_path, tokens);
    tokens.add_bos = bool_field(config, "add_bos_token", false, config_path.string());
    tokens.add_eos = bool_field(config, "add_eos_token", false, config_path.string());
    tokens.add_prefix_space = bool_field(config, "add_prefix_space", false, config_path.string());
    if (config.contains("added_tokens_decoder")) {
        const json& by_id = object_field(config, "added_tokens_decoder", config_path.string());
        for (const auto& [id, token] : by_id.items()) {
            const std::string what = config_path.string() + ": added_tokens_decoder " + in_quotes(id);
            const bool is_number =
                !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
            if (!is_number) throw BadFile(what + " is not an id");
            tokens.ids.emplace_back(std::stoll(id), added_token(token, false, what));
        }
    } else {
        const path map_path = directory / "special_tokens_map.json", added_path = directory / "added_tokens.json";
        take_named(read_optional_object(map_path), map_path, tokens);
        const json added = read_optional_object(added_path);
        for (const auto& [content, id] : added.items()) {
            const std::int64_t number = token_id(id, added_path.string() + ": " + in_quotes(content));
            tokens.ids.emplace_back(number, added_token(json(content), is_special(tokens, json(content)), ""));
        }
    }
    std::sort(tokens.ids.begin(), tokens.ids.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return tokens;
}

json added_tokens_of(const SpecialTokens& tokens, const json& vocab) {
    std::int64_t next_id = 0;
    for (const auto& [token, id] : vocab.items())
        next_id = std::max<std::int64_t>(next_id, 1 + token_id(id, "vocab entry " + in_quotes(token)));
    json list = json::array();
    std::set<std::string> known;
    const auto add = [&](json token, std::optional<std::int64_t> id) {
        const auto& content = token["content"].get_ref<const std::string&>();
        if (!known.insert(content).second) return;
        if (is_special(tokens, token["content"])) token["special"] = true;
        const auto in_vocab = vocab.find(content);
        if (in_vocab != vocab.end()) id = in_vocab->get<std::int64_t>();
        token["id"] = static_cast<std::uint64_t>(id.value_or(next_id));
        next_id = std::max(next_id, id.value_or(next_id) + 1);
        list.push_back(std::move(token));
    };
    for (const auto& [id, token] : tokens.ids)
        add(token, id);
    for (const char* name : kNamedTokens) {
        if (const auto named = tokens.named.find(name); named != tokens.named.end()) add(named->second, std::nullopt);
    }
    for (const json& token : tokens.extra)
        add(token, std::nullopt);
    return list;
}

json post_processor_of(const SpecialTokens& tokens, const json& added) {
    json single = json::array(), special = json::object();
    const auto add = [&](const char* name) {
        const auto named = tokens.named.find(name);
        if (named == tokens.named.end()) return;
        const json& content = named->second["content"];
        const auto token =
            std::find_if(added.begin(), added.end(), [&](const json& t) { return t["content"] == content; });
        single.push_back({{"SpecialToken", {{"id", content}, {"type_id", 0}}}});
        special[content.get<std::string>()] = {{"id", content}, {"ids", {(*token)["id"]}}, {"tokens", {content}}};
    };
    if (tokens.add_bos) add("bos_token");
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (tokens.add_eos) add("eos_token");
    return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", special}};
}

} // namespace entrodraft::model
