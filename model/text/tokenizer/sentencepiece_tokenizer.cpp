// Makes a tokenizer from SentencePiece's tokenizer.model alone: see tokenizer_files.h. Its BPE joins any two pieces
// that make a third, the highest score first. A user-defined piece is never joined to anything.
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <memory>

#include "model/files/json_file.h"
#include "model/text/tokenizer/byte_trie.h"
#include "model/text/tokenizer/sentencepiece_file.h"
#include "model/text/tokenizer/special_tokens.h"
#include "model/text/tokenizer/tokenizer_files.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

using nlohmann::json;
using Type = SentencePieceFile::PieceType;

void check_class(const json& config, const std::filesystem::path& path) {
    const json& name = field(config, "tokenizer_class");
    for (const char* known : {"LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "CodeLlamaTokenizerFast",
                              "GemmaTokenizer", "GemmaTokenizerFast"})
        if (name.is_null() || name == known) return;
    throw BadFile(fmt::format("{}: tokenizer_class {}: of tokenizer.model alone those of Llama and Gemma are read; "
                              "make a tokenizer.json of it "
                              "with python -c \"from transformers import AutoTokenizer as T; "
                              "T.from_pretrained('DIR').save_pretrained('DIR')\"",
                              path.string(), name.dump()));
}

BpeModel bpe_of(const SentencePieceFile& file, const std::string& unknown) {
    BpeModel model;
    model.byte_fallback = file.byte_fallback;
    model.fuse_unk = true;
    model.unk_token = unknown;
    std::map<float, std::uint32_t, std::greater<>> ranks; // by score
    for (const SentencePieceFile::Piece& piece : file.pieces)
        if (piece.type == Type::normal) ranks[piece.score] = 0;
    for (std::uint32_t next = 0; auto& [score, rank] : ranks)
        rank = next++;
    std::vector<std::optional<std::uint32_t>> rank_of; // of pieces that are made by joining
    for (std::size_t id = 0; id < file.pieces.size(); ++id) {
        const SentencePieceFile::Piece& piece = file.pieces[id];
        if (piece.type == Type::unused) throw BadFile("unused pieces of a BPE model are not supported");
        model.tokens.emplace_back(piece.text);
        if (piece.type == Type::user_defined) model.uncut.insert(static_cast<TokenId>(id));
        rank_of.push_back(piece.type == Type::normal ? std::optional(ranks.at(piece.score)) : std::nullopt);
    }
    add_all_merges(model, rank_of);
    return model;
}

UnigramModel unigram_of(const SentencePieceFile& file, TokenId unknown) {
    UnigramModel model;
    model.has_float_sums = true;
    model.byte_fallback = file.byte_fallback;
    model.unk_id = unknown;
    model.scores = piece_scores(file);
    model.unk_score = unknown_score(file);
    for (const SentencePieceFile::Piece& piece : file.pieces)
        model.tokens.emplace_back(piece.text);
    return model;
}

// Cuts text at the longest user-defined pieces, from left to right.
PreTokenizerStep cut_at(const SentencePieceFile& file) {
    const auto pieces = std::make_shared<ByteTrie>();
    for (const SentencePieceFile::Piece& piece : file.pieces)
        if (piece.type == Type::user_defined && !piece.text.empty()) pieces->at(piece.text) = 0;
    return [pieces](Pieces& text) {
        std::vector<Span> spans;
        for (const Span& span : text.spans) {
            std::size_t begin = span.begin; // beginning of text without such a piece
            for (std::size_t at = span.begin; at < span.end;) {
                std::size_t length = 0;
                std::int32_t node = ByteTrie::kRoot;
                for (std::size_t end = at; end < span.end && node != ByteTrie::kNone; ++end) {
                    node = pieces->next(node, text.text[end]);
                    if (node != ByteTrie::kNone && pieces->value(node) >= 0) length = end + 1 - at;
                }
                if (length > 0) {
                    if (begin < at) spans.push_back({begin, at});
                    spans.push_back({at, at + length});
                    begin = at + length;
                }
                at += length > 0 ? length : code_point_at(text.text, at).n_bytes;
            }
            if (begin < span.end) spans.push_back({begin, span.end});
        }
        text.spans = std::move(spans);
    };
}

// Drops a text's leading spaces as SentencePiece does: one, or all if the file removes extra spaces.
json decoder_of(const SentencePieceFile& file) {
    constexpr unsigned kAll = 1'000'000;
    const unsigned dropped = file.removes_extra_spaces ? kAll : file.adds_space ? 1 : 0;
    json steps = {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                  {{"type", "ByteFallback"}},
                  {{"type", "Fuse"}}};
    if (dropped > 0) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", dropped}, {"stop", 0U}});
    return {{"type", "Sequence"}, {"decoders", steps}};
}

std::size_t unknown_piece(const SentencePieceFile& file) {
    const auto found = std::ranges::find(file.pieces, Type::unknown, &SentencePieceFile::Piece::type);
    if (found == file.pieces.end()) throw BadFile("no piece stands for unknown text");
    return static_cast<std::size_t>(found - file.pieces.begin());
}

} // namespace

TokenizerFiles read_sentencepiece(const std::string& bytes, const std::filesystem::path& directory) {
    SentencePieceFile file = parse_sentencepiece(bytes);
    const std::filesystem::path config_path = directory / "tokenizer_config.json";
    const json config = read_optional_object(config_path);
    check_class(config, config_path);
    file.adds_space = bool_field(config, "add_prefix_space", file.adds_space, config_path.string());
    SpecialTokens tokens = read_special_tokens(directory, {{"unk_token", file.pieces[unknown_piece(file)].text}});
    tokens.add_bos = bool_field(config, "add_bos_token", true, config_path.string());
    return sentencepiece_tokenizer(file, std::move(tokens), bool_field(config, "legacy", false, config_path.string()));
}

TokenizerFiles sentencepiece_tokenizer(const SentencePieceFile& file, SpecialTokens tokens, bool is_legacy) {
    const std::size_t unknown = unknown_piece(file);
    json vocab = json::object();
    std::vector<std::pair<std::int64_t, json>> special;
    for (std::size_t id = 0; id < file.pieces.size(); ++id) {
        const SentencePieceFile::Piece& piece = file.pieces[id];
        if (!vocab.emplace(piece.text, id).second)
            throw BadFile(fmt::format("two pieces are {}", in_quotes(piece.text)));
        if (piece.type == Type::unknown || piece.type == Type::control)
            special.emplace_back(static_cast<std::int64_t>(id), added_token(json(piece.text), true, ""));
    }
    for (const auto& [name, piece] : {std::pair("bos_token", file.bos_piece), {"eos_token", file.eos_piece}})
        if (!tokens.named.contains(name) && vocab.contains(piece))
            tokens.named[name] = added_token(json(piece), true, name);
    tokens.ids.insert(tokens.ids.begin(), special.begin(), special.end());
    json added = added_tokens_of(tokens, vocab);
    for (json& token : added)
        token["normalized"] = false;

    TokenizerFiles files;
    if (file.kind == SentencePieceFile::Kind::bpe) {
        files.model = bpe_of(file, file.pieces[unknown].text);
        files.pre_tokenizer = cut_at(file);
    } else {
        files.model = unigram_of(file, static_cast<TokenId>(unknown));
    }
    files.normalizer = sentencepiece_normalizer(file, is_legacy);
    files.others = {
        {"added_tokens", added}, {"post_processor", post_processor_of(tokens, added)}, {"decoder", decoder_of(file)}};
    return files;
}

} // namespace entrodraft::model
