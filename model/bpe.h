// Byte pair encoding over bytes: a word begins as its bytes and the pair of the lowest rank is merged until none
// is left. Knows nothing of text, words or special tokens. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "entrodraft/model/tokenizer.h"

namespace entrodraft::model {

struct Merge {
    TokenId left = 0;
    TokenId right = 0;
    TokenId result = 0;
};

// The "model" of a tokenizer.json as it stands there: tokens in the byte-level alphabet, merges by rank.
struct BpeModel {
    std::vector<std::optional<std::string>> tokens; // by id; ids may have holes
    std::vector<Merge> merges;
    bool ignore_merges = false; // a word that is a token becomes that token
};

// Checks everything and throws BadFile with the reason. Local.
BpeModel bpe_model_from_json(const nlohmann::json& model);

class Bpe {
  public:
    // Throws BadFile when a byte that occurs in UTF-8 has no token. Local.
    explicit Bpe(const BpeModel& model);

  private:
    friend class WordEncoder;

    struct Rule {
        std::uint64_t pair = kNoPair;
        std::uint32_t rank = 0;
        TokenId result = 0;
    };
    static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

    static std::uint64_t pair_key(TokenId left, TokenId right);
    std::size_t slot_of(std::uint64_t pair) const; // where the pair is, or the free place where it would be
    const Rule* rule(TokenId left, TokenId right) const;

    std::array<TokenId, 256> byte_tokens_{};
    std::vector<Rule> rules_;                              // open addressing, at most half full
    std::unordered_map<std::string, TokenId> whole_words_; // only where ignore_merges
};

// Encodes words one after another with one Bpe, remembering short ones (at most kMaxWords): one object a text,
// so that a Bpe can serve many threads.
class WordEncoder {
  public:
    explicit WordEncoder(const Bpe& bpe) : bpe_(&bpe) {}
    // Appends the ids of the word's bytes. Time n log n in its length. Local.
    void encode(std::string_view word, std::vector<TokenId>& ids);

  private:
    static constexpr std::size_t kMaxWords = 1 << 16;
    static constexpr std::size_t kMaxWordBytes = 64;

    struct Symbol {
        TokenId id = 0; // -1: merged into the one before
        std::int64_t previous = -1;
        std::int64_t next = -1;
    };
    struct Candidate {
        std::uint32_t rank = 0;
        TokenId result = 0;
        std::int64_t position = 0;
        // "comes later": the heap's top is the lowest rank, leftmost first
        bool operator<(const Candidate& other) const {
            return rank != other.rank ? rank > other.rank : position > other.position;
        }
    };
    struct Remembered {
        std::uint32_t begin = 0, size = 0; // in remembered_ids_
    };
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>{}(word); }
    };

    void merge(std::string_view word, std::vector<TokenId>& ids);
    void propose(std::int64_t left);
    void join(const Candidate& candidate);

    const Bpe* bpe_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
    std::unordered_map<std::string, Remembered, Hash, std::equal_to<>> words_;
    std::vector<TokenId> remembered_ids_;
};

} // namespace entrodraft::model
