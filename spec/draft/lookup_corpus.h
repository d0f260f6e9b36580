// Keeps the texts that the drafter `suffix` searches in addition to its own: their tokens, and a suffix array over
// them. Both are made in memory, or mapped from a file of build-corpus, whose pages all processes of a host share.
//
// It knows no tokenizer and nothing of drafting. Called by the suffix drafter, build-corpus and the loader of drafters.
//
// The file is little-endian and has no gaps:
//     char magic[8] = "EDCORPS\n"; u32 version = 1; u32 vocab V; u64 tokenizer fingerprint; u64 tokens N;
//     u64 checksum (hash_bytes of each of the other parts, each seeded with the one before)
//     i32 token[N]: 0 to V - 1, or V where a text ends
//     u32 suffix[N]: positions, ordered by the tokens from there on
#pragma once

#include "spec/draft/lookup_index.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::model {
class MappedFile;
}

namespace entrodraft::spec {

class LookupCorpus {
  public:
    static constexpr std::size_t kMaxTokens = 0x7ffffffe;

    // `tokens` are 0 to `vocab_size`; `vocab_size` ends a text. Throws std::length_error above kMaxTokens.
    LookupCorpus(std::vector<TokenId> tokens, int vocab_size);
    // Opens a file that build-corpus made. All of it is checked, and then read only as needed. Throws model::BadFile
    // naming the file, the problem and the remedy, also for a file made with another vocabulary or tokenizer.
    static std::shared_ptr<const LookupCorpus> open(const std::filesystem::path& file, int vocab_size,
                                                    std::uint64_t fingerprint);
    // The same from bytes, aligned as u64, which must outlive this. `name` is for messages.
    LookupCorpus(std::span<const std::byte> bytes, const std::string& name, int vocab_size, std::uint64_t fingerprint);
    ~LookupCorpus();
    LookupCorpus(const LookupCorpus&) = delete;
    LookupCorpus& operator=(const LookupCorpus&) = delete;

    // Returns whether a regular file begins as those of build-corpus do; false if it cannot be read.
    static bool is_corpus_file(const std::filesystem::path& file);

    std::span<const TokenId> tokens() const { return tokens_; }
    // The longest end of `text`, of at least `shortest` tokens (>= 1), that is in the corpus and followed by a token
    // there. If it is in several places, a sample of these decides: the chosen place continues as most of them do. It
    // takes O(log length) searches of O(length log N).
    std::optional<LookupMatch> match(std::span<const TokenId> text, int shortest) const;
    // Hands the bytes of the file to `write`, part by part.
    void write(std::uint64_t fingerprint, const std::function<void(std::span<const std::byte>)>& write) const;
    std::uint64_t file_bytes() const;

  private:
    LookupCorpus(std::unique_ptr<model::MappedFile> file, int vocab_size, std::uint64_t fingerprint);
    void check(std::span<const std::byte> bytes, const std::string& name, std::uint64_t fingerprint);
    int order(std::uint32_t position, std::span<const TokenId> sought) const;
    TokenId token_of(std::uint32_t suffix, std::size_t i) const;
    std::uint32_t most_frequent(std::span<const std::uint32_t> suffixes, std::size_t length) const;
    std::optional<std::size_t> behind(std::span<const TokenId> sought) const;

    int vocab_size_ = 0;
    std::unique_ptr<model::MappedFile> file_;
    std::vector<TokenId> own_tokens_; // empty if the corpus is mapped
    std::vector<std::uint32_t> own_suffixes_;
    std::span<const TokenId> tokens_;
    std::span<const std::uint32_t> suffixes_;
};

} // namespace entrodraft::spec
