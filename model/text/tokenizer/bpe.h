// Byte pair encoding: a word begins as its characters, or its bytes. The pair of the lowest rank is merged again and
// again, until no pair has a rank. It does not depend on text, words or special tokens. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/text/token_id.h"
#include "model/text/tokenizer/word_cache.h"

namespace entrodraft::model {

struct Merge {
    TokenId left = 0;
    TokenId right = 0;
    TokenId result = 0;
};

// The "model" of a tokenizer.json as in the file: merges by rank.
struct BpeModel {
    std::vector<std::optional<std::string>> tokens; // by id; ids may have holes
    std::vector<Merge> merges;
    bool ignore_merges = false;            // a word that is a token becomes that token
    bool byte_fallback = false;            // a character without a token becomes tokens <0xNN> of its bytes
    bool fuse_unk = false;                 // unknown characters in a row become one token
    std::optional<std::string> unk_token;  // token of unknown characters; without it they are dropped
    std::string continuing_subword_prefix; // before every character except a word's first
    std::string end_of_word_suffix;        // after a word's last character
    std::vector<std::uint32_t> ranks;      // of the merges; empty: their indices
    std::unordered_set<TokenId> uncut;     // a word that is one of these becomes that token
};

// Checks everything. Throws BadFile with the reason.
BpeModel bpe_model_from_json(const nlohmann::json& model);

// For each token with a rank, adds a merge for each way to cut it into two tokens. The merge has the token's rank; of
// equal ones, the leftmost comes first. `ranks` are by id.
void add_all_merges(BpeModel& model, const std::vector<std::optional<std::uint32_t>>& ranks);

class Bpe {
  public:
    // `takes_bytes`: words come as bytes, each of which is a character of the byte-level alphabet.
    Bpe(BpeModel model, bool takes_bytes);

  private:
    friend class BpeEncoder;

    struct Rule {
        std::uint64_t pair = kNoPair;
        std::uint32_t rank = 0;
        TokenId result = 0;
    };
    static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
    static constexpr char32_t kDirectCharacters = 0x10000; // below it, characters have their tokens in a plain array

    static std::uint64_t pair_key(std::uint32_t left, std::uint32_t right);
    static std::size_t slot_of(const std::vector<Rule>& rules, std::uint64_t pair);
    void add_rule(std::vector<Rule>& rules, const Rule& rule);
    const Rule* rule(TokenId left, TokenId right) const;
    TokenId id_of(const std::string& token) const;      // -1: none
    TokenId id_of_character(char32_t character) const;  // -1: none
    bool may_join(char32_t left, char32_t right) const; // a merge joins tokens that end and begin with these
    bool has_affixes() const { return !prefix_.empty() || !suffix_.empty(); }

    bool takes_bytes_ = false;
    bool ignore_merges_ = false, byte_fallback_ = false, fuse_unk_ = false;
    std::string prefix_, suffix_;
    std::optional<std::string> unk_token_;
    TokenId unk_id_ = -1;                          // of unk_token_, if the vocabulary has it
    std::vector<Rule> rules_;                      // open addressing, at most half full
    std::vector<Rule> joints_;                     // the same, for pairs of characters: see may_join
    std::vector<TokenId> direct_;                  // tokens of single characters below kDirectCharacters
    std::unordered_map<std::string, TokenId> ids_; // all tokens
    std::array<TokenId, 256> byte_tokens_{};       // of <0x00> to <0xFF>
    std::unordered_set<TokenId> uncut_;
};

// Encodes the words of one text with one Bpe.
class BpeEncoder {
  public:
    explicit BpeEncoder(const Bpe& bpe) : bpe_(&bpe) {}
    // Appends the ids of the word, in time n log n. Throws std::runtime_error on an unknown character if the file names
    // an unk_token that it does not have.
    void encode(std::string_view word, std::vector<TokenId>& ids);

  private:
    static constexpr std::size_t kLongWord = 48; // bytes; in longer words it pays to look for a place to cut

    struct Symbol {
        TokenId id = 0; // -1: merged into the previous one
        std::int32_t previous = -1;
        std::int32_t next = -1;
    };
    struct Candidate {
        std::uint32_t rank = 0;
        TokenId result = 0;
        std::int32_t position = 0;
        // It means "comes later": the heap's top has the lowest rank, and of these the leftmost.
        bool operator<(const Candidate& other) const {
            return rank != other.rank ? rank > other.rank : position > other.position;
        }
    };

    void encode_part(std::string_view part, std::vector<TokenId>& ids);
    void begin(std::string_view word);
    bool add_bytes_of(std::string_view character);
    void add(TokenId id);
    void merge(std::vector<TokenId>& ids);
    void propose(std::int32_t left);
    void join(const Candidate& candidate);

    const Bpe* bpe_;
    WordCache words_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
};

} // namespace entrodraft::model
