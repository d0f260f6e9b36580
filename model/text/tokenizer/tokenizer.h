// Text to token ids and back, as the checkpoint's tokenizer.json says, or where it has none, its vocab.json and
// merges.txt, or other files (tokenizer_files.h). BPE over bytes or characters, and Unigram.
//
// The file's components are taken in order: added_tokens, normalizer, pre_tokenizer, model, post_processor, decoder.
// An unknown component is an error that names it. Equal to the reference (PyPI tokenizers) in ids and text.
#pragma once

#include "model/text/token_id.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace entrodraft::model {

class Tokenizer {
  public:
    // Of a GGUF file, or reads directory/tokenizer.json, else Marian's files, vocab.json and merges.txt, tekken.json,
    // tokenizer.model or qwen.tiktoken. Throws BadFile.
    static Tokenizer open(const std::filesystem::path& directory);
    // Of a model with an encoder, what its sources are encoded with; none: what open() gives. Throws BadFile.
    static std::optional<Tokenizer> open_source(const std::filesystem::path& directory);

    // Ids of UTF-8 text; invalid UTF-8 throws std::invalid_argument with the byte offset. With
    // `add_special_tokens` the post-processor's template is applied. Time n log n in the length of the text, whose
    // characters without any token throw std::runtime_error where the file has none for them.
    std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const;
    // Text of ids; bytes that are not UTF-8 become U+FFFD. Throws std::out_of_range on an id outside the vocabulary.
    // Ids of a continuation give the text that they give alone: what a decoder does to a text's first token it does to
    // the first of these (SentencePiece's drop its leading space). To join prompt and continuation, decode both
    // together.
    std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

    // Whether a token has the id; between those of tokens there may be others.
    bool has_token(TokenId id) const;
    // The token as the file spells it, and the bytes that it stands for in the midst of a text.
    const std::string& token(TokenId id) const;
    std::string token_bytes(TokenId id) const;
    // Whether decode leaves the token out when it skips special tokens.
    bool is_special(TokenId id) const;
    // One above the highest id.
    int size() const;
    // 64-bit hash of the kind of model, its (id, token) pairs, merges or scores: equal for two files whose ids mean the
    // same and come about alike, be they tokenizer.json or vocab.json and merges.txt.
    std::uint64_t fingerprint() const;
    // "BPE" or "Unigram".
    std::string_view kind() const;

  private:
    friend class StreamDecoder;
    struct Impl;
    explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

class TokenStream;

// Decodes a growing sequence and hands out whole characters only: what may yet change is held back, be it the bytes of
// an unfinished character or, under byte fallback, a whole run of byte tokens, which must be UTF-8 together. The pieces
// put together equal Tokenizer::decode of all ids. The tokenizer outlives it.
class StreamDecoder {
  public:
    StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);
    StreamDecoder(StreamDecoder&&) noexcept;
    StreamDecoder& operator=(StreamDecoder&&) noexcept;
    ~StreamDecoder();

    // Text that became certain with this token; may be empty.
    std::string push(TokenId id);
    // What is left at the end: an unfinished character becomes U+FFFD.
    std::string finish();

  private:
    const Tokenizer* tokenizer_;
    bool skip_special_tokens_;
    std::unique_ptr<TokenStream> stream_;
};

} // namespace entrodraft::model
