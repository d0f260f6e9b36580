// The Unigram model of SentencePiece. There are many ways to cut a word into pieces; it takes the one with the highest
// sum of scores. It does not depend on text, words or special tokens. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/text/token_id.h"
#include "model/text/tokenizer/byte_trie.h"
#include "model/text/tokenizer/word_cache.h"

namespace entrodraft::model {

// The "model" of a tokenizer.json as in the file; or pieces of SentencePiece's own file with other ids.
struct UnigramModel {
    std::vector<std::optional<std::string>> tokens; // by id; a tokenizer.json has all of them
    std::vector<double> scores;                     // by id; NaN: text is not cut into these
    TokenId unk_id = -1;                            // of characters that no piece has; -1: none
    bool byte_fallback = false;                     // unknown text becomes tokens <0xNN> of its bytes

    struct Piece {
        std::string text;
        double score = 0;
    };
    std::vector<Piece> without_id;   // text is cut into them, and they become unk_id
    std::optional<double> unk_score; // of a character that no piece has; none: 10 below the lowest
    bool has_float_sums = false;     // scores are added as SentencePiece does, else as PyPI's tokenizers
};

// Checks everything. Throws BadFile with the reason.
UnigramModel unigram_model_from_json(const nlohmann::json& model);

// Returns a score as the reference reads it: digits as a whole number, then divided by a power of ten, which rounds
// twice. Scores that differ in their last bit can change the cuts of a run of equal letters.
double score_of(double exact);

class Unigram {
  public:
    explicit Unigram(const UnigramModel& model);

  private:
    friend class UnigramEncoder;

    ByteTrie pieces_;
    std::vector<double> scores_;
    double unk_score_ = 0;
    TokenId unk_id_ = -1;
    TokenId n_ids_ = 0; // from here on, ids are of pieces without one
    bool has_float_sums_ = false;
    bool byte_fallback_ = false;
    std::array<TokenId, 256> byte_tokens_{};
};

// Encodes the words of one text with one Unigram.
class UnigramEncoder {
  public:
    explicit UnigramEncoder(const Unigram& unigram) : unigram_(&unigram) {}
    // Appends the ids of the word, which is valid UTF-8. Linear in its length for a given vocabulary. Throws
    // std::runtime_error on unknown text if the model has no unk_id.
    void encode(std::string_view word, std::vector<TokenId>& ids);
    // Appends the id of the token with this spelling, or the tokens of unknown text.
    void append_token(std::string_view text, std::vector<TokenId>& ids) const;

  private:
    struct Node { // the best cut of the word up to a place
        double score = 0;
        TokenId id = 0;
        std::int32_t begin = -1; // of its last piece; -1: no cut ends here
    };

    void find_best(std::string_view word);
    void offer(std::size_t begin, std::size_t end, double score, TokenId id);

    const Unigram* unigram_;
    WordCache words_;
    std::vector<Node> best_; // by end
    std::vector<std::size_t> ends_;
};

} // namespace entrodraft::model
