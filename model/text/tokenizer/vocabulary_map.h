// Two vocabularies side by side: which tokens of a target and a draft are the same text, and a text of the target's
// tokens in those of the draft.
//
// Knows no model. Called by the drafters whose draft has another vocabulary than the target, and by inspect.
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

// A tokenizer beside a model's own facts.
struct ModelVocabulary {
    Tokenizer tokenizer;
    int n_rows = 0;                       // of the model's logits: tokens beyond are never emitted
    std::vector<std::int64_t> eos_tokens; // as the model's config has them
};

class VocabularyMap {
  public:
    struct SharedToken {
        TokenId target = 0;
        TokenId draft = 0;
    };

    // Tokens are the same where their bytes in the midst of a text are, whichever way their files spell them; special
    // tokens where their spelling is, or both end a text.
    VocabularyMap(ModelVocabulary target, ModelVocabulary draft);

    // One to one, by the target's ids. Of tokens of equal bytes it has that which text is encoded with.
    std::span<const SharedToken> shared() const { return shared_; }
    // Of the tokens that the model emits.
    int n_target_tokens() const { return n_target_tokens_; }
    int n_draft_tokens() const { return n_draft_tokens_; }
    double target_share() const { return static_cast<double>(shared_.size()) / std::max(1, n_target_tokens_); }

    // The same text in one token of the draft; -1: there is none.
    TokenId draft_token(TokenId target) const;
    // The same text in one token of the target; -1: there is none.
    TokenId target_token(TokenId draft) const;
    const Tokenizer& target() const { return target_.vocabulary.tokenizer; }
    const Tokenizer& draft() const { return draft_.vocabulary.tokenizer; }

  private:
    friend class TranslatedText;

    struct Side {
        ModelVocabulary vocabulary;
        std::vector<TokenId> begin;                // what its template puts in front of a text
        std::vector<TokenId> context;              // of the word in front of what encode() is given
        std::array<TokenId, 256> byte_tokens = {}; // -1: none

        explicit Side(ModelVocabulary of);
        // Tokens that the model may emit are below.
        int n_known() const { return std::min(vocabulary.tokenizer.size(), vocabulary.n_rows); }
        // Appends the tokens of bytes in the midst of a text. What the vocabulary has no tokens for is left out.
        void encode(std::string_view bytes, std::vector<TokenId>& ids) const;
        void encode_valid(std::string_view text, std::vector<TokenId>& ids) const;
    };
    // What is known of a token of the target.
    struct Facts {
        TokenId draft = -1;
        bool is_known = false, is_special = false;
        bool begins_with_space = false, ends_with_space = false;
        bool continues_character = false; // its first byte is not the first of a character
    };

    void match_texts();
    void match_ends();
    const Facts& facts_of(TokenId target) const { return facts_.at(static_cast<std::size_t>(target)); }

    Side target_, draft_;
    std::vector<Facts> facts_;        // [target's tokens]
    std::vector<TokenId> target_ids_; // [draft's tokens]: target_token()
    std::vector<SharedToken> shared_;
    int n_target_tokens_ = 0, n_draft_tokens_ = 0;
};

// A growing text of the target's tokens in those of the draft, which reads complete words as its own tokenizer writes
// them; in the last word, which may go on, a token that both know is that token, and what is in front of another one is
// encoded anew with it. The result is a function of the target's tokens alone. The map outlives it.
class TranslatedText {
  public:
    explicit TranslatedText(const VocabularyMap& map) : map_(&map) {}

    // The text is now this: forwards or back. Costs what lies behind what both have in common, and the word in front of
    // it.
    void follow(std::span<const TokenId> target);
    // Of the text. It may be empty where the text is a mark that the draft does not know.
    std::span<const TokenId> tokens() const { return draft_; }
    // Those that stay, whatever follows the text.
    std::span<const TokenId> settled() const;
    std::size_t n_target() const { return target_.size(); }
    // The target's tokens of bytes that follow the text: as its tokenizer writes them behind the last word, or, where
    // that word would have other tokens with them, by themselves.
    std::vector<TokenId> target_tokens_behind(std::string_view bytes) const;
    void clear();

  private:
    struct Word {
        std::size_t target = 0, draft = 0; // where it begins
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
