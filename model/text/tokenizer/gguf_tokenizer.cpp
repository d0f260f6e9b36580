// Reads the tokenizer in a GGUF file: see tokenizer_files.h. Kind "gpt2" is byte-level BPE, and another name in the
// file says how to cut text into words. Kind "llama" is SentencePiece's BPE.
#include <algorithm>
#include <fmt/format.h>
#include <initializer_list>
#include <optional>

#include "model/text/tokenizer/sentencepiece_file.h"
#include "model/text/tokenizer/special_tokens.h"
#include "model/text/tokenizer/tokenizer_files.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

using nlohmann::json;
using Type = SentencePieceFile::PieceType; // GGUF has SentencePiece's numbers for token types

class Values {
  public:
    explicit Values(const json& metadata) : metadata_(metadata) {
        for (const json& token : list("tokens")) {
            if (!token.is_string()) throw BadFile("'tokenizer.ggml.tokens' is not a list of strings");
            tokens.push_back(token.get<std::string>());
            check_token_length(tokens.back(), "tokenizer.ggml.tokens");
        }
        if (tokens.size() > static_cast<std::size_t>(kMaxTokenId)) throw BadFile("there are too many tokens");
        for (const json& type : list("token_type")) {
            const auto number = type.is_number_integer() ? type.get<std::int64_t>() : 0;
            if (number < 1 || number > 6) throw BadFile("'tokenizer.ggml.token_type' has values other than 1 to 6");
            types.push_back(static_cast<Type>(number));
        }
        if (types.size() != tokens.size()) throw BadFile("tokens and token types are not as many");
    }

    const json& value(const char* name) const {
        return field(metadata_, ("tokenizer.ggml." + std::string(name)).c_str());
    }
    const json& list(const char* name) const {
        const json& found = value(name);
        if (!found.is_array()) throw BadFile(fmt::format("'tokenizer.ggml.{}' is missing or not a list", name));
        return found;
    }
    bool truth(const char* name, bool default_value) const {
        return bool_field(metadata_, ("tokenizer.ggml." + std::string(name)).c_str(), default_value, "tokenizer");
    }
    // Returns the id of the token "bos", "eos" and so on, if a key gives it.
    std::optional<std::size_t> id_of(const std::string& name) const {
        const json& id = value((name + "_token_id").c_str());
        if (id.is_null()) return std::nullopt;
        const auto at = static_cast<std::size_t>(token_id(id, name + "_token_id"));
        if (at >= tokens.size())
            throw BadFile(fmt::format("'tokenizer.ggml.{}_token_id' is {}, of {} tokens", name, at, tokens.size()));
        return at;
    }
    std::string special(const std::string& name) const { // empty: none
        const auto at = id_of(name);
        return at ? tokens[*at] : "";
    }

    std::vector<std::string> tokens;
    std::vector<Type> types;

  private:
    const json& metadata_;
};

SpecialTokens special_tokens(const Values& values, bool adds_bos) {
    SpecialTokens special;
    for (const char* name : {"bos", "eos"})
        if (const std::string token = values.special(name); !token.empty())
            special.named[name + std::string("_token")] = added_token(json(token), true, name);
    special.add_bos = values.truth("add_bos_token", adds_bos) && special.named.contains("bos_token");
    special.add_eos = values.truth("add_eos_token", false) && special.named.contains("eos_token");
    return special;
}

TokenizerFiles sentencepiece(const Values& values) {
    SentencePieceFile file;
    file.kind = SentencePieceFile::Kind::bpe;
    file.adds_space = values.truth("add_space_prefix", true);
    file.removes_extra_spaces = values.truth("remove_extra_whitespaces", false);
    if (!values.value("precompiled_charsmap").is_null()) throw BadFile("precompiled_charsmap is not supported");
    const json& scores = values.list("scores");
    if (scores.size() != values.tokens.size()) throw BadFile("tokens and scores are not as many");
    for (std::size_t id = 0; id < values.tokens.size(); ++id) {
        if (!scores[id].is_number()) throw BadFile("'tokenizer.ggml.scores' is not a list of numbers");
        file.pieces.push_back({values.tokens[id], scores[id].get<float>(), values.types[id]});
        file.byte_fallback = file.byte_fallback || values.types[id] == Type::byte;
    }
    // Some converters mark the unknown token as a control token. Without a key, it is the first token.
    if (std::ranges::find(values.types, Type::unknown) == values.types.end() && !file.pieces.empty())
        file.pieces[values.id_of("unknown").value_or(0)].type = Type::unknown;
    file.bos_piece = values.special("bos");
    file.eos_piece = values.special("eos");
    return sentencepiece_tokenizer(file, special_tokens(values, true), false);
}

// The way to cut text and the settings that go with it, by tokenizer.ggml.pre.
struct Cutting {
    json parts;
    bool ignores_merges = false, adds_bos = false; // the second is used where the file has no value
};

// Returns a pattern for words by their capitals, each with an optional ending.
std::string cased_words_pattern(const std::string& ending, const std::string& digits) {
    return fmt::format(
        R"([^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{0}|)"
        R"([^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{0}|)"
        R"({1}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        ending, digits);
}

Cutting cutting_of(const Values& values) {
    const json& name = values.value("pre");
    const auto is = [&](std::initializer_list<const char*> names) {
        return std::ranges::any_of(names, [&](const char* each) { return name == each; });
    };
    const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    const json nfc = {{"type", "NFC"}};
    const char *one_digit = R"(\p{N})", *three_digits = R"(\p{N}{1,3})";
    if (is({"gpt-2", "default"})) return {{{"pre_tokenizer", byte_level}, {"decoder", {{"type", "ByteLevel"}}}}};
    if (is({"starcoder", "refact", "smollm", "command-r"})) {
        const json digits = {{"type", "Digits"}, {"individual_digits", true}};
        json parts = {{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {digits, byte_level}}}},
                      {"decoder", {{"type", "ByteLevel"}}}};
        if (name == "command-r") parts["normalizer"] = nfc;
        return {std::move(parts)};
    }
    if (is({"llama-bpe", "llama3", "llama-v3"})) return {byte_level_parts(words_pattern(three_digits)), true, true};
    if (is({"dbrx", "smaug-bpe"})) return {byte_level_parts(words_pattern(three_digits))};
    if (is({"glm4", "chatglm-bpe"})) return {byte_level_parts(words_pattern(three_digits)), name == "glm4"};
    if (is({"tekken"})) return {byte_level_parts(cased_words_pattern("", one_digit)), true, true};
    if (is({"gpt-4o"})) return {byte_level_parts(cased_words_pattern("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", three_digits))};
    if (!is({"qwen2"}))
        throw BadFile(fmt::format("'tokenizer.ggml.pre' is {}; supported: chatglm-bpe, command-r, dbrx, default, "
                                  "glm4, gpt-2, gpt-4o, llama-bpe, qwen2, refact, smaug-bpe, smollm, starcoder, tekken",
                                  name.dump(-1, ' ', true, json::error_handler_t::replace)));
    json parts = byte_level_parts(words_pattern(one_digit));
    parts["normalizer"] = nfc;
    return {std::move(parts)};
}

TokenizerFiles byte_level(const Values& values) {
    const Cutting cutting = cutting_of(values);
    json file = cutting.parts, vocab = json::object();
    SpecialTokens special = special_tokens(values, cutting.adds_bos);
    for (std::size_t id = 0; id < values.tokens.size(); ++id) {
        const Type type = values.types[id];
        if (!vocab.emplace(values.tokens[id], id).second)
            throw BadFile(fmt::format("two tokens are {}", in_quotes(values.tokens[id])));
        if (type == Type::normal || type == Type::unused) continue;
        json token = added_token(json(values.tokens[id]), type == Type::control, "");
        special.ids.emplace_back(static_cast<std::int64_t>(id), std::move(token));
    }
    json added = added_tokens_of(special, vocab);
    for (json& token : added)
        token["normalized"] = false;
    file["post_processor"] = post_processor_of(special, added);
    file["added_tokens"] = std::move(added);
    const json model = {{"type", "BPE"},
                        {"merges", values.list("merges")},
                        {"ignore_merges", cutting.ignores_merges},
                        {"vocab", std::move(vocab)}};
    return {bpe_model_from_json(model), {}, {}, std::move(file)};
}

} // namespace

TokenizerFiles read_gguf_tokenizer(const json& metadata) {
    const json& kind = field(metadata, "tokenizer.ggml.model");
    if (kind.is_null()) throw BadFile("holds no tokenizer");
    const Values values(metadata);
    if (kind == "llama") return sentencepiece(values);
    if (kind == "gpt2") return byte_level(values);
    throw BadFile(fmt::format("'tokenizer.ggml.model' is {}; supported: gpt2, llama",
                              kind.dump(-1, ' ', true, json::error_handler_t::replace)));
}

} // namespace entrodraft::model
