// Reads files of ranks (tokenizer_files.h): tiktoken's, for Qwen's first models (qwen.tiktoken) and Llama 3 (its
// original tokenizer.model), and Mistral's tekken.json. All are BPE over bytes. It joins any two tokens that make a
// third, the lowest rank first. A tiktoken file does not say how text is cut into words: the model's family decides it.
#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <functional>
#include <set>

#include "model/files/json_file.h"
#include "model/text/tokenizer/byte_level.h"
#include "model/text/tokenizer/special_tokens.h"
#include "model/text/tokenizer/tokenizer_files.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

using nlohmann::json;
using std::filesystem::path;

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
constexpr const char* kWords = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
constexpr const char* kOthers = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string bytes_of_base64(std::string_view text, const std::string& what) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    const std::size_t end = text.find_last_not_of('=') + 1;
    unsigned bits = 0, n_bits = 0;
    for (const char digit : text.substr(0, end)) {
        const std::size_t value = kDigits.find(digit);
        if (value == std::string_view::npos) throw BadFile(what + ": " + in_quotes(text) + " is not base64");
        bits = bits << 6 | static_cast<unsigned>(value);
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        bytes += static_cast<char>(bits >> n_bits & 0xFFU);
    }
    if (text.size() % 4 != 0 || text.size() - end > 2 || bytes.empty())
        throw BadFile(what + ": " + in_quotes(text) + " is not base64");
    return bytes;
}

// Tokens by rank. A token's id is its rank plus `first_id`.
struct Ranks {
    BpeModel model;
    std::vector<std::optional<std::uint32_t>> of_id;
    std::size_t first_id = 0;

    void add(std::size_t rank, std::string_view bytes, const std::string& what) {
        std::string token = to_byte_level(bytes);
        check_token_length(token, what);
        const std::size_t id = first_id + rank;
        if (id > static_cast<std::size_t>(kMaxTokenId)) throw BadFile(what + ": the rank is too large");
        if (model.tokens.size() <= id) model.tokens.resize(id + 1);
        if (model.tokens[id]) throw BadFile(fmt::format("{}: two tokens have the rank {}", what, rank));
        model.tokens[id] = std::move(token);
        of_id.resize(model.tokens.size());
        of_id[id] = static_cast<std::uint32_t>(rank);
    }

    BpeModel finish() {
        std::array<bool, 256> known{};
        for (const auto& token : model.tokens)
            if (const auto bytes = token ? from_byte_level(*token) : std::nullopt; bytes && bytes->size() == 1)
                known[static_cast<unsigned char>((*bytes)[0])] = true;
        if (!std::ranges::all_of(known, std::identity{})) throw BadFile("not every byte is a token");
        model.ignore_merges = true; // a word that is a token is not cut
        add_all_merges(model, of_id);
        return std::move(model);
    }
};

// Reads lines of a token in base64 and its rank. Returns nothing if the first line is not such a line.
std::optional<Ranks> read_tiktoken(std::string_view text) {
    Ranks ranks;
    for (std::size_t number = 1; !text.empty(); ++number) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty()) continue;
        const std::string what = fmt::format("line {}", number);
        const std::size_t space = line.find(' ');
        std::uint32_t rank = 0;
        const std::string_view digits = space == std::string_view::npos ? "" : line.substr(space + 1);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
        const bool is_line = !digits.empty() && error == std::errc{} && end == digits.data() + digits.size();
        if (!is_line && ranks.of_id.empty()) return std::nullopt;
        if (!is_line) throw BadFile(what + " is not a token and its rank");
        ranks.add(rank, bytes_of_base64(line.substr(0, space), what), what);
    }
    return ranks;
}

} // namespace

std::string words_pattern(const char* digits) {
    return std::string(kWords) + digits + kOthers;
}

json byte_level_parts(const std::string& pattern) {
    const json split = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    return {{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
            {"decoder", {{"type", "ByteLevel"}}}};
}

namespace {

// Adds special tokens by `names`, starting at id `first_id`, where `tokens` has no other token for the id.
void add_special(TokenizerFiles& files, SpecialTokens tokens, const std::vector<std::string>& names,
                 std::size_t first_id) {
    std::set<std::int64_t> given;
    for (const auto& [id, token] : tokens.ids)
        given.insert(id);
    for (std::size_t i = 0; i < names.size(); ++i)
        if (const auto id = static_cast<std::int64_t>(first_id + i); !given.contains(id))
            tokens.ids.emplace_back(id, added_token(json(names[i]), true, ""));
    const json added = added_tokens_of(tokens, json::object());
    files.others["post_processor"] = post_processor_of(tokens, added);
    files.others["added_tokens"] = added;
}

// Llama 3.1's names. If tokenizer_config.json has other names, those count.
std::vector<std::string> llama3_special_tokens() {
    std::vector<std::string> names = {"<|begin_of_text|>",
                                      "<|end_of_text|>",
                                      "<|reserved_special_token_0|>",
                                      "<|reserved_special_token_1|>",
                                      "<|finetune_right_pad_id|>",
                                      "<|step_id|>",
                                      "<|start_header_id|>",
                                      "<|end_header_id|>",
                                      "<|eom_id|>",
                                      "<|eot_id|>",
                                      "<|python_tag|>"};
    constexpr std::size_t kAll = 256;
    for (std::size_t next = 2; names.size() < kAll; ++next)
        names.push_back(fmt::format("<|reserved_special_token_{}|>", next));
    return names;
}

std::vector<std::string> qwen_special_tokens() {
    std::vector<std::string> names = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    for (int i = 0; i < 205; ++i)
        names.push_back(fmt::format("<|extra_{}|>", i));
    return names;
}

TokenizerFiles tiktoken_files(Ranks ranks, const path& file) {
    const path directory = file.parent_path(), config_path = directory / "config.json";
    const json config = read_optional_object(config_path);
    const json& type = field(config, "model_type");
    const bool is_qwen = file.extension() == ".tiktoken";
    if (!type.is_null() && type != (is_qwen ? "qwen" : "llama"))
        throw BadFile(
            fmt::format("a file of tiktoken does not say how text is cut; known are Llama 3's tokenizer.model "
                        "and qwen.tiktoken, and {} has model_type {}: add the model's tokenizer.json",
                        config_path.string(), type.dump()));
    TokenizerFiles files;
    files.others = byte_level_parts(words_pattern(is_qwen ? R"(\p{N})" : R"(\p{N}{1,3})"));
    if (is_qwen) files.others["normalizer"] = {{"type", "NFC"}};
    SpecialTokens tokens;
    if (is_qwen)
        tokens = read_special_tokens(directory, {});
    else
        tokens = read_special_tokens(directory, {{"bos_token", "<|begin_of_text|>"}});
    tokens.add_bos = !is_qwen;
    add_special(files, std::move(tokens), is_qwen ? qwen_special_tokens() : llama3_special_tokens(),
                ranks.model.tokens.size());
    files.model = ranks.finish();
    return files;
}

// Returns [n_special], in the order of their ids.
std::vector<std::string> tekken_special_tokens(const json& tekken, std::size_t n_special) {
    // Files of the first versions do not list them.
    std::vector<std::string> names = {"<unk>",
                                      "<s>",
                                      "</s>",
                                      "[INST]",
                                      "[/INST]",
                                      "[AVAILABLE_TOOLS]",
                                      "[/AVAILABLE_TOOLS]",
                                      "[TOOL_RESULTS]",
                                      "[/TOOL_RESULTS]",
                                      "[TOOL_CALLS]",
                                      "[IMG]",
                                      "<pad>",
                                      "[IMG_BREAK]",
                                      "[IMG_END]",
                                      "[PREFIX]",
                                      "[MIDDLE]",
                                      "[SUFFIX]",
                                      "[SYSTEM_PROMPT]",
                                      "[/SYSTEM_PROMPT]",
                                      "[TOOL_CONTENT]"};
    if (!field(tekken, "special_tokens").is_null()) {
        names.clear();
        for (const json& token : array_field(tekken, "special_tokens", "tekken")) {
            if (token_id(field(token, "rank"), "special_tokens") != static_cast<TokenId>(names.size()))
                throw BadFile("special_tokens are not in the order of their ranks");
            names.push_back(string_field(token, "token_str", "special_tokens"));
        }
    }
    if (names.size() > n_special) throw BadFile("special_tokens are more than default_num_special_tokens");
    while (names.size() < n_special)
        names.push_back(fmt::format("<SPECIAL_{}>", names.size()));
    return names;
}

TokenizerFiles tekken_files(const path& file) {
    const json tekken = read_json_file(file, kMaxBytes);
    if (!tekken.is_object()) throw BadFile("not an object");
    const json& config = object_field(tekken, "config", "tekken");
    const auto n_special = static_cast<std::size_t>(token_id(field(config, "default_num_special_tokens"), "config"));
    const auto n_all = static_cast<std::size_t>(token_id(field(config, "default_vocab_size"), "config"));
    if (n_all <= n_special) throw BadFile("config: default_vocab_size is below default_num_special_tokens");
    const std::vector<std::string> names = tekken_special_tokens(tekken, n_special);
    Ranks ranks{.model = {}, .of_id = {}, .first_id = n_special};
    for (const json& token : array_field(tekken, "vocab", "tekken")) {
        const auto rank = static_cast<std::size_t>(token_id(field(token, "rank"), "vocab"));
        if (rank >= n_all - n_special) continue; // the file has more tokens than the model
        const std::string what = fmt::format("vocab: rank {}", rank);
        ranks.add(rank, bytes_of_base64(string_field(token, "token_bytes", what), what), what);
    }
    TokenizerFiles files;
    files.others = byte_level_parts(string_field(config, "pattern", "config"));
    SpecialTokens tokens;
    tokens.named["bos_token"] = added_token("<s>", true, "");
    tokens.add_bos = true;
    add_special(files, std::move(tokens), names, 0);
    files.model = ranks.finish();
    return files;
}

} // namespace

std::optional<path> other_tokenizer_file(const path& directory) {
    for (const char* name : {"tekken.json", "tokenizer.model", "qwen.tiktoken"})
        if (file_exists(directory / name)) return directory / name;
    return std::nullopt;
}

TokenizerFiles read_other_tokenizer(const path& file) {
    if (file.filename() == "tekken.json") return tekken_files(file);
    const std::string bytes = read_text_file(file, kMaxBytes);
    if (std::optional<Ranks> ranks = read_tiktoken(bytes); ranks && !ranks->of_id.empty())
        return tiktoken_files(std::move(*ranks), file);
    if (file.extension() == ".tiktoken") throw BadFile("line 1 is not a token and its rank");
    return read_sentencepiece(bytes, file.parent_path());
}

} // namespace entrodraft::model
