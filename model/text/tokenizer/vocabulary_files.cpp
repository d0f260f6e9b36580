// Makes a tokenizer.json from vocab.json and merges.txt: tokenizer_from_vocabulary() of tokenizer_json.h. Also reads
// Marian's files: tokenizer_files.h.
#include "model/text/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/files/json_file.h"
#include "model/text/tokenizer/sentencepiece_file.h"
#include "model/text/tokenizer/special_tokens.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

using nlohmann::json;
using std::filesystem::path;

constexpr std::size_t kMaxVocabularyBytes = std::size_t{64} << 20;
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

// Refuses a directory whose other files say that its tokenizer is not GPT-2's: vocab.json and merges.txt do not say how
// to cut words.
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
        throw BadFile((directory / "tokenizer.json").string() +
                      ": no such file, nor vocab.json and merges.txt, tokenizer.model, tekken.json or qwen.tiktoken");
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

// Makes the numbered tokens. Pieces that text is cut into have scores; without a number, they are without_id.
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
    const std::vector<double> scores = piece_scores(file);
    for (std::size_t i = 0; i < file.pieces.size(); ++i) {
        if (std::isnan(scores[i])) continue;
        if (const auto numbered = vocab.find(file.pieces[i].text); numbered != vocab.end())
            model.scores[numbered->get<std::size_t>()] = scores[i];
        else
            model.without_id.push_back({file.pieces[i].text, scores[i]});
    }
    model.unk_score = unknown_score(file);
    return model;
}

} // namespace

bool has_marian_files(const path& directory) {
    return file_exists(directory / "source.spm") && file_exists(directory / "target.spm");
}

TokenizerFiles read_marian_files(const path& directory, bool of_source) {
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
    TokenizerFiles files;
    UnigramModel model;
    const path pieces_path = directory / (of_source ? "source.spm" : "target.spm");
    try {
        const SentencePieceFile file = parse_sentencepiece(read_text_file(pieces_path, kMaxVocabularyBytes));
        if (file.kind != SentencePieceFile::Kind::unigram || file.byte_fallback)
            throw BadFile("a SentencePiece model of another kind than Unigram without byte_fallback is not supported");
        files.normalizer = sentencepiece_normalizer(file, true);
        model = model_of(file, vocab, vocab_path.string());
    } catch (const BadFile& error) {
        throw BadFile(pieces_path.string() + ": " + error.what());
    }
    const auto unk = tokens.named.find("unk_token");
    const auto unk_id = unk == tokens.named.end() ? vocab.end() : vocab.find(unk->second["content"]);
    if (unk_id == vocab.end()) throw BadFile(vocab_path.string() + ": the unknown token is not in it");
    model.unk_id = unk_id->get<TokenId>();
    files.model = std::move(model);
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
