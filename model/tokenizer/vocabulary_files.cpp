// A tokenizer.json out of vocab.json and merges.txt: tokenizer_from_vocabulary() of tokenizer_json.h; and Marian's
// files: marian_files.h.
#include "model/tokenizer/marian_files.h"

#include <algorithm>
#include <cfloat>
#include <fmt/format.h>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "model/checkpoint/json_file.h"
#include "model/tokenizer/sentencepiece_file.h"
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

// `defaults`: those that no file has to name.
SpecialTokens read_special_tokens(const path& directory,
                                  std::initializer_list<std::pair<const char*, const char*>> defaults) {
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
    constexpr const char* kEnd = "<|endoftext|>";
    const SpecialTokens tokens =
        read_special_tokens(directory, {{"bos_token", kEnd}, {"eos_token", kEnd}, {"unk_token", kEnd}});
    json file = {{"added_tokens", added_tokens_of(tokens, vocab)},
                 {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", tokens.add_prefix_space}}},
                 {"decoder", {{"type", "ByteLevel"}}}};
    file["post_processor"] = post_processor_of(tokens, file["added_tokens"]);
    file["model"] = {{"type", "BPE"}, {"merges", read_merges(merges_path)}};
    file["model"]["vocab"] = std::move(vocab);
    return file;
}

namespace {

// The numbered tokens, and the scores of those that text is cut into; the others of these are without_id.
UnigramModel model_of(const SentencePieceFile& file, const json& vocab, const std::string& what) {
    UnigramModel model;
    model.has_float_sums = true;
    for (const auto& [token, number] : vocab.items()) {
        const auto id = static_cast<std::size_t>(token_id(number, what + ": " + in_quotes(token)));
        check_token_length(token, what);
        if (model.tokens.size() <= id) model.tokens.resize(id + 1);
        if (model.tokens[id]) throw BadFile(fmt::format("{}: two tokens have the id {}", what, id));
        model.tokens[id] = token;
    }
    model.scores.assign(model.tokens.size(), std::numeric_limits<double>::quiet_NaN());
    using Type = SentencePieceFile::PieceType;
    float lowest = FLT_MAX, highest = FLT_MIN; // as SentencePiece begins
    for (const SentencePieceFile::Piece& piece : file.pieces) {
        if (piece.type != Type::normal) continue;
        lowest = std::min(lowest, piece.score);
        highest = std::max(highest, piece.score);
    }
    for (const SentencePieceFile::Piece& piece : file.pieces) {
        if ((piece.type != Type::normal && piece.type != Type::user_defined) || piece.text.empty()) continue;
        const bool is_normal = piece.type == Type::normal;
        const double score = is_normal ? piece.score : static_cast<float>(piece.text.size()) * highest - 0.1;
        if (const auto numbered = vocab.find(piece.text); numbered != vocab.end())
            model.scores[numbered->get<std::size_t>()] = score;
        else
            model.without_id.push_back({piece.text, score});
    }
    model.unk_score = lowest - 10.0F;
    return model;
}

} // namespace

bool has_marian_files(const path& directory) {
    return file_exists(directory / "source.spm") && file_exists(directory / "target.spm");
}

MarianFiles read_marian_files(const path& directory, bool of_source) {
    const path config_path = directory / "tokenizer_config.json";
    const bool is_separate =
        bool_field(read_optional_object(config_path), "separate_vocabs", false, config_path.string());
    const path vocab_path = directory / (is_separate && !of_source ? "target_vocab.json" : "vocab.json");
    const json vocab = read_json_file(vocab_path, kMaxVocabularyBytes);
    if (!vocab.is_object()) throw BadFile(vocab_path.string() + ": not an object");
    SpecialTokens tokens =
        read_special_tokens(directory, {{"unk_token", "<unk>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}});
    tokens.add_bos = false;
    tokens.add_eos = true;
    MarianFiles files;
    const path pieces_path = directory / (of_source ? "source.spm" : "target.spm");
    try {
        const SentencePieceFile file = parse_sentencepiece(read_text_file(pieces_path, kMaxVocabularyBytes));
        files.normalizer = sentencepiece_normalizer(file);
        files.model = model_of(file, vocab, vocab_path.string());
    } catch (const BadFile& error) {
        throw BadFile(pieces_path.string() + ": " + error.what());
    }
    const auto unk = tokens.named.find("unk_token");
    const auto unk_id = unk == tokens.named.end() ? vocab.end() : vocab.find(unk->second["content"]);
    if (unk_id == vocab.end()) throw BadFile(vocab_path.string() + ": the unknown token is not in it");
    files.model.unk_id = unk_id->get<TokenId>();
    json added = added_tokens_of(tokens, vocab);
    for (json& token : added)
        token["normalized"] = false;
    files.others = {{"added_tokens", added}, {"post_processor", post_processor_of(tokens, added)}};
    constexpr unsigned kAll = 1'000'000; // spaces
    files.others["decoder"] = {{"type", "Sequence"},
                               {"decoders",
                                {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                                 {{"type", "Fuse"}},
                                 {{"type", "Strip"}, {"content", " "}, {"start", kAll}, {"stop", kAll}}}}};
    return files;
}

} // namespace entrodraft::model
