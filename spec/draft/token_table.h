// Counts how often each token, and each pair of neighbours, occurs in a text. Keeps the counts in a file, and turns
// them into the distributions of the unigram and bigram drafters.
//
// It knows no text and no tokenizer. Called by build-table, and by the drafters that use the tables.
//
// The file is little-endian and has no gaps:
//     char magic[8] = "EDTABLE\n"; u32 version = 1; u32 vocab V; u64 tokenizer fingerprint; u64 total tokens N;
//     u64 pairs B; u64 checksum (hash_bytes of each of the other parts, each seeded with the one before)
//     u32 count[V]; u32 followers[V], kinds of token seen after token y, their sum B
//     B of {u32 token; u32 count}: what followed token 0, by rising token, then token 1, ...
#pragma once

#include "spec/protocol/packet.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::spec {

struct Follower {
    TokenId token = 0;
    std::uint32_t count = 0; // > 0
};

struct TokenCounts {
    int vocab_size = 0;
    std::uint64_t fingerprint = 0;         // of the tokenizer
    std::uint64_t total = 0;               // tokens of the text: one more than its pairs
    std::vector<std::uint32_t> unigrams;   // [vocab]
    std::vector<std::uint64_t> row_starts; // [vocab + 1]: followers of y are [row_starts[y], row_starts[y + 1])
    std::vector<Follower> followers;       // by rising token within a row
};

// Counts a text that comes in parts. Memory: about 32 bytes a distinct pair, and 8 MiB.
class TokenCounter {
  public:
    static constexpr std::uint64_t kMaxTokens = 0xffffffff;
    static constexpr std::size_t kMaxPairs = std::size_t{1} << 27;

    // Throws std::invalid_argument unless vocab_size > 0.
    TokenCounter(int vocab_size, std::uint64_t fingerprint, std::size_t max_pairs = kMaxPairs);

    // Counts the next part; a pair may lie across two parts. Throws std::out_of_range on a token outside the
    // vocabulary, std::length_error if there are too many tokens or distinct pairs.
    void add(std::span<const TokenId> tokens);
    std::uint64_t total() const { return counts_.total; }
    // Returns the counts so far. The counter must not be used again.
    TokenCounts take();

  private:
    void merge();

    TokenCounts counts_;
    std::size_t max_pairs_;
    TokenId previous_ = -1;
    std::vector<std::uint64_t> pending_;    // pairs as previous << 32 | token, as they came
    std::vector<std::uint64_t> pairs_;      // the same, each once, sorted
    std::vector<std::uint32_t> pair_count_; // [pairs]
};

// Hands the bytes of the file to `write`, part by part.
void write_token_counts(const TokenCounts& counts, const std::function<void(std::span<const std::byte>)>& write);
// Bytes of that file.
std::uint64_t token_counts_bytes(const TokenCounts& counts);
// Parses the counts in a file's bytes. All is checked before memory is taken for them. `name` is the file's, for
// messages. Throws model::BadFile.
TokenCounts parse_token_counts(std::span<const std::byte> bytes, const std::string& name);

// Distributions over the vocabulary, in which every token has some probability:
//     q1(x)     = (count(x) + 1) / (N + V)
//     q2(x | y) = (count(y, x) + b q1(x)) / (count(y) + b),  count(y) how often something followed y
class TokenTable {
  public:
    // b: how much text the unigrams weigh in a row. Among 1, 2, 5, 10, ..., 1000 it is the most likely on held-out
    // books, within 0.002 nats, at every size of text from 30 thousand to 3.9 million tokens (vocabulary 4096).
    static constexpr double kPrior = 100;

    explicit TokenTable(const TokenCounts& counts);
    // Reads a file that build-table wrote. Throws model::BadFile naming the file, the problem and the remedy, also for
    // a file made with another vocabulary or tokenizer.
    static TokenTable open(const std::filesystem::path& file, int vocab_size, std::uint64_t fingerprint);

    int vocab_size() const { return static_cast<int>(unigrams_.size()); }
    // Log-probabilities of every token, after `previous` (order 2) or whatever comes before (order 1). If nothing
    // followed `previous` in the text, they are those of order 1. `logits` may be shorter than the vocabulary; if it is
    // longer, the rest becomes -infinity. Throws std::invalid_argument unless order is 1 or 2, std::out_of_range unless
    // `previous` (of order 2) is a token.
    void row(int order, TokenId previous, std::span<float> logits) const;

  private:
    struct Likelihood {
        TokenId token = 0;
        float log_probability = 0;
    };

    std::vector<float> unigrams_; // [vocab] log q1
    std::vector<float> shifts_;   // [vocab] log q2(x | y) - log q1(x) of tokens not seen after y
    std::vector<std::uint64_t> row_starts_;
    std::vector<Likelihood> followers_;
};

} // namespace entrodraft::spec
