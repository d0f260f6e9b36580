// Text to token ids and back, as the checkpoint's tokenizer.json says. Byte-level BPE.
//
// The file's components are taken in order: added_tokens, normalizer, pre_tokenizer, model,
// post_processor, decoder. An unknown component is an error that names it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

using TokenId = std::int32_t;

class Tokenizer {
  public:
    // Reads directory/tokenizer.json. Throws BadFile. Local.
    static Tokenizer open(const std::filesystem::path& directory);
    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    // Ids of UTF-8 text; invalid UTF-8 throws std::invalid_argument with the byte offset. With
    // `add_special_tokens` the post-processor's template is applied. Linear in the length of the text. Local.
    std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const;
    // Text of ids; bytes that are no UTF-8 become U+FFFD. Throws std::out_of_range on an id outside the vocabulary.
    // Local.
    std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

    // Raw bytes one token stands for, before UTF-8 is put together: what StreamDecoder feeds on.
    std::string token_bytes(TokenId id) const;
    bool is_special(TokenId id) const;
    // One above the highest id.
    int size() const;
    // 64-bit hash over (id, token) pairs and merges: equal for two files that tokenize alike.
    std::uint64_t fingerprint() const;

  private:
    struct Impl;
    explicit Tokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Decodes a growing sequence and hands out whole UTF-8 characters only: bytes of an unfinished
// character are held back. The pieces put together equal Tokenizer::decode of all ids.
class StreamDecoder {
  public:
    StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);
    // Text that became complete with this token; may be empty. Local.
    std::string push(TokenId id);
    // What is left at the end: an unfinished character becomes U+FFFD. Local.
    std::string finish();

  private:
    const Tokenizer* tokenizer_;
    bool skip_special_tokens_;
    std::string pending_; // bytes of an unfinished character
};

} // namespace entrodraft::model
