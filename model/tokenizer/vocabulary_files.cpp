// A tokenizer.json out of vocab.json and merges.txt: tokenizer_from_vocabulary() of tokenizer_json.h.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "model/checkpoint/json_file.h"
#include "model/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

using nlohmann::json;
using std::filesystem::path;

constexpr std::size_t kMaxVocabularyBytes = std::size_t{64} << 20;
constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

// An added token as tokenizer.json has it, from a string or an object with flags. `special_if_bare`: a string is.
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

// The special tokens that the directory's files name.
struct SpecialTokens {
    std::map<std::string, json> named;              // bos_token and so on
    std::vector<json> extra;                        // additional ones, and named ones of no standard name
    std::vector<std::pair<std::int64_t, json>> ids; // tokens with the ids that the files give them
    bool add_bos = false, add_eos = false;
    bool add_prefix_space = false;
};

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

SpecialTokens read_special_tokens(const path& directory) {
    SpecialTokens tokens;
    for (const char* name : {"bos_token", "eos_token", "unk_token"})
        tokens.named[name] = added_token("<|endoftext|>", true, name);
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

// The added_tokens list: those with ids, then named and extra ones; what no file gives an id follows the vocabulary.
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

json read_merges(const path& file) {
    const std::string text = read_text_file(file, kMaxVocabularyBytes);
    json merges = json::array();
    std::size_t number = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        std::string_view line(text.data() + begin, end - begin);
        begin = end + 1;
        ++number;
        if (line.ends_with('\r')) line.remove_suffix(1);
        const bool is_last_and_empty = line.empty() && begin >= text.size();
        if (line.starts_with("#version") || is_last_and_empty) continue;
        const std::size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
            throw BadFile(fmt::format("{}: line {}: {} is not two tokens with a space between", file.string(), number,
                                      in_quotes(line)));
        }
        merges.push_back({std::string(line.substr(0, space)), std::string(line.substr(space + 1))});
    }
    return merges;
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

// Refuses a directory whose other files say that its tokenizer is not GPT-2's: the two files do not say how to cut
// words.
void check_kind(const path& directory) {
    const auto refuse = [&](const path& file, const std::string& found) {
        throw BadFile(file.string() + ": " + found +
                      ": vocab.json and merges.txt alone are enough for GPT-2 and OPT "
                      "only; add the model's tokenizer.json");
    };
    const path tokenizer_path = directory / "tokenizer_config.json", config_path = directory / "config.json";
    const json tokenizer_config = read_optional_object(tokenizer_path), config = read_optional_object(config_path);
    const json& kind = field(tokenizer_config, "tokenizer_class");
    const json& type = field(config, "model_type");
    if (kind == "GPT2Tokenizer" || kind == "GPT2TokenizerFast") return;
    if (kind.is_string()) refuse(tokenizer_path, "tokenizer_class " + in_quotes(kind.get<std::string>()));
    if (type.is_string() && type != "gpt2" && type != "opt") {
        refuse(config_path, "model_type " + in_quotes(type.get<std::string>()));
    }
}

} // namespace

json tokenizer_from_vocabulary(const path& directory) {
    const path vocab_path = directory / "vocab.json", merges_path = directory / "merges.txt";
    const bool has_vocab = file_exists(vocab_path), has_merges = file_exists(merges_path);
    if (!has_vocab && !has_merges) {
        const path sentencepiece = directory / "tokenizer.model";
        if (!file_exists(sentencepiece)) {
            throw BadFile((directory / "tokenizer.json").string() + ": no such file, nor vocab.json and merges.txt");
        }
        throw BadFile(sentencepiece.string() +
                      ": a SentencePiece model, which is not read; make a tokenizer.json of it with python -c \"from "
                      "transformers import AutoTokenizer as T; T.from_pretrained('" +
                      directory.string() + "').save_pretrained('" + directory.string() + "')\"");
    }
    if (!has_vocab) throw BadFile(vocab_path.string() + ": no such file beside merges.txt");
    if (!has_merges) throw BadFile(merges_path.string() + ": no such file beside vocab.json");
    check_kind(directory);
    json vocab = read_json_file(vocab_path, kMaxVocabularyBytes);
    if (!vocab.is_object()) throw BadFile(vocab_path.string() + ": not an object");
    const SpecialTokens tokens = read_special_tokens(directory);
    json file = {{"added_tokens", added_tokens_of(tokens, vocab)},
                 {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", tokens.add_prefix_space}}},
                 {"decoder", {{"type", "ByteLevel"}}}};
    file["post_processor"] = post_processor_of(tokens, file["added_tokens"]);
    file["model"] = {{"type", "BPE"}, {"merges", read_merges(merges_path)}};
    file["model"]["vocab"] = std::move(vocab);
    return file;
}

} // namespace entrodraft::model
