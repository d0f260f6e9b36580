// Turns text into token ids and back, with the checkpoint's tokenizer.json. If there is none, it uses vocab.json and
// merges.txt, or other files (tokenizer_files.h). Models are BPE over bytes or characters, and Unigram.
//
// The file's components run in order: added_tokens, normalizer, pre_tokenizer, model, post_processor, decoder. An
// unknown component is an error that names it. Ids and text equal those of the reference (PyPI tokenizers).
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
    // Reads a GGUF file, or directory/tokenizer.json, else Marian's files, vocab.json and merges.txt, tekken.json,
    // tokenizer.model or qwen.tiktoken. Throws BadFile.
    static Tokenizer open(const std::filesystem::path& directory);
    // For a model with an encoder, returns its sources' tokenizer. Nothing: the one of open() serves. Throws BadFile.
    static std::optional<Tokenizer> open_source(const std::filesystem::path& directory);

    // Returns the ids of UTF-8 text. With `add_special_tokens` the post-processor's template is applied. Time is n log
    // n in the length of the text. Invalid UTF-8 throws std::invalid_argument with the byte offset. Characters without
    // a token throw std::runtime_error if the file has none for them.
    std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const;
    // Returns the text of ids; bytes that are not UTF-8 become U+FFFD. Throws std::out_of_range on an id outside the
    // vocabulary. Ids of a continuation give the text that they give alone: the decoder treats the first of them as a
    // text's first token (SentencePiece's drops its leading space). To join prompt and continuation, decode both
    // together.
    std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

    // Returns whether a token has this id; there may be unused ids between those of tokens.
    bool has_token(TokenId id) const;
    // The token as the file spells it, and the bytes that it means in the middle of a text.
    const std::string& token(TokenId id) const;
    std::string token_bytes(TokenId id) const;
    // Returns whether decode leaves the token out when it skips special tokens.
    bool is_special(TokenId id) const;
    // Returns one more than the highest id.
    int size() const;
    // Returns a 64-bit hash of the kind of model, its (id, token) pairs, and its merges or scores. Two files whose ids
    // mean the same and are made in the same way have the same hash: tokenizer.json, or vocab.json and merges.txt.
    std::uint64_t fingerprint() const;
    // Returns "BPE" or "Unigram".
    std::string_view kind() const;

  private:
    friend class StreamDecoder;
    struct Impl;
    explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

class TokenStream;

// Decodes a growing sequence and gives out only whole characters. Text that may still change is held back: the bytes of
// an unfinished character or, under byte fallback, a whole run of byte tokens, which must be UTF-8 together. The pieces
// together equal Tokenizer::decode of all ids. The tokenizer outlives it.
class StreamDecoder {
  public:
    StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);
    ~StreamDecoder();

    // Returns text that became certain with this token; may be empty.
    std::string push(TokenId id);
    // Returns the rest at the end: an unfinished character becomes U+FFFD.
    std::string finish();

  private:
    const Tokenizer* tokenizer_;
    bool skip_special_tokens_;
    std::unique_ptr<TokenStream> stream_;
};

} // namespace entrodraft::model
