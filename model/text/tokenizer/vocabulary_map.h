// Maps two vocabularies to each other. It finds the tokens with the same text in a target's and a draft's vocabulary,
// and rewrites a text from the target's tokens into the draft's.
//
// It does not depend on models. Called by drafters whose draft has another vocabulary than the target, and by inspect.
#pragma once

#include "model/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

// A tokenizer, and facts of its model.
struct ModelVocabulary {
    Tokenizer tokenizer;
    int n_rows = 0;                       // rows of the model's logits: tokens beyond are never emitted
    std::vector<std::int64_t> eos_tokens; // as in the model's config
};

class VocabularyMap {
  public:
    struct SharedToken {
        TokenId target = 0;
        TokenId draft = 0;
    };

    // Tokens are the same if their bytes in the middle of a text are the same, however their files spell them. Special
    // tokens are the same if their spelling is, or if both end a text.
    VocabularyMap(ModelVocabulary target, ModelVocabulary draft);

    // Shared tokens are one to one, by the target's ids. Of tokens with equal bytes, encoding's token counts.
    std::span<const SharedToken> shared() const { return shared_; }
    // Counts the tokens that the model emits.
    int n_target_tokens() const { return n_target_tokens_; }
    int n_draft_tokens() const { return n_draft_tokens_; }
    double target_share() const { return static_cast<double>(shared_.size()) / std::max(1, n_target_tokens_); }

    // Returns the draft's token with the same text; -1: there is none.
    TokenId draft_token(TokenId target) const;
    // Returns the target's token with the same text; -1: there is none.
    TokenId target_token(TokenId draft) const;
    const Tokenizer& target() const { return target_.vocabulary.tokenizer; }
    const Tokenizer& draft() const { return draft_.vocabulary.tokenizer; }

  private:
    friend class TranslatedText;

    struct Side {
        ModelVocabulary vocabulary;
        std::vector<TokenId> begin;                // tokens that its template puts before a text
        std::vector<TokenId> context;              // tokens of the word before encode()'s input
        std::array<TokenId, 256> byte_tokens = {}; // -1: none

        explicit Side(ModelVocabulary of);
        // Tokens that the model may emit are below this number.
        int n_known() const { return std::min(vocabulary.tokenizer.size(), vocabulary.n_rows); }
        // Appends the tokens of bytes in the middle of a text. Leaves out parts for which the vocabulary has no tokens.
        void encode(std::string_view bytes, std::vector<TokenId>& ids) const;
        void encode_valid(std::string_view text, std::vector<TokenId>& ids) const;
    };
    // The known facts of a token of the target.
    struct Facts {
        TokenId draft = -1;
        bool is_known = false, is_special = false;
        bool begins_with_space = false, ends_with_space = false;
        bool continues_character = false; // its first byte is not the first one of a character
    };

    void match_texts();
    void match_ends();
    const Facts& facts_of(TokenId target) const { return facts_.at(target); }

    Side target_, draft_;
    std::vector<Facts> facts_;        // [target's tokens]
    std::vector<TokenId> target_ids_; // [draft's tokens]: target_token()
    std::vector<SharedToken> shared_;
    int n_target_tokens_ = 0, n_draft_tokens_ = 0;
};

// A growing text of the target's tokens, in the draft's tokens. Complete words are written as by the draft's own
// tokenizer. In the last word, which may go on, a shared token stays that token; the text before another token is
// encoded again with it. The result depends only on the target's tokens. The map outlives it.
class TranslatedText {
  public:
    explicit TranslatedText(const VocabularyMap& map) : map_(&map) {}

    // Sets the text, forwards or back. The cost depends on the part after the common beginning of old and new text, and
    // on the word before that part.
    void follow(std::span<const TokenId> target);
    // The draft's tokens of the text. They may be empty if the text is a mark that the draft does not know.
    std::span<const TokenId> tokens() const { return draft_; }
    // The draft's tokens that stay, whatever follows the text.
    std::span<const TokenId> settled() const;
    std::size_t n_target() const { return target_.size(); }
    // Returns the target's tokens of bytes that follow the text, as its tokenizer writes them after the last word. If
    // the bytes would change that word's tokens, returns their tokens by themselves.
    std::vector<TokenId> target_tokens_behind(std::string_view bytes) const;
    void clear();

  private:
    struct Word {
        std::size_t target = 0, draft = 0; // where the word begins
    };

    bool begins_word(TokenId token) const;
    void end_word();
    void append(TokenId token);
    std::string bytes_from(std::size_t first) const;

    const VocabularyMap* map_;
    std::vector<TokenId> target_, draft_;
    std::vector<Word> words_;
};

} // namespace entrodraft::model
