// What lookahead decoding (Fu et al. 2024) keeps of a text: a pool of n-grams, and the window of guesses whose rows in
// the target's passes fill it.
//
// Knows nothing of drafts, passes or acceptance. Called by lookahead_drafter.cpp.
#pragma once

#include "spec/verify/token_id.h"

#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace entrodraft::spec {

struct LookaheadOptions {
    int window = 2;     // W, --lookahead-window: columns of guesses
    int ngram = 3;      // N, --lookahead-ngram: tokens of an n-gram
    int candidates = 1; // G, --lookahead-candidates: n-grams of the pool that a round verifies, at most

    int window_tokens() const { return window * (ngram - 1) - 1; }
    // Drafted tokens of a round, at most.
    int max_tokens() const { return window_tokens() + candidates * (ngram - 1); }
};
// Empty when usable; else what is wrong, naming the option.
std::string why_invalid(const LookaheadOptions& options);

// Of each first token, the most recent n-grams that begin with it, each once.
class NgramPool {
  public:
    // `kept`: n-grams of a first token.
    NgramPool(int ngram, int kept);

    void clear() { tails_.clear(); }
    // [ngram]; it is the most recent now.
    void add(std::span<const TokenId> tokens);
    // The other ngram - 1 tokens of each that begins with `first`, one after another, the most recent first. Good until
    // the next call of another function.
    std::span<const TokenId> tails_of(TokenId first) const;
    std::size_t tail_size() const { return tail_size_; }

  private:
    std::size_t tail_size_, kept_;
    std::unordered_map<TokenId, std::vector<TokenId>> tails_;
};

// Guesses of the tokens to come (Jacobi iteration): N - 1 levels of W columns. The token of a level and a column is a
// guess of what comes so many positions behind the text's last token as level and column add up to; that of level 0,
// column 0 is the text's last token itself, which is not kept here. Row by row the target reads a column behind level
// 0 up to it, and what it says behind the last level is the column's next guess: with it the column is an n-gram.
class LookaheadWindow {
  public:
    explicit LookaheadWindow(const LookaheadOptions& options) : options_(options) {}

    // Another text begins, with guesses drawn from these tokens, at least one.
    void begin(std::span<const TokenId> tokens);
    int columns() const { return options_.window; }
    int levels() const { return options_.ngram - 1; }
    // Not of level 0, column 0.
    TokenId guess(int level, int column) const;
    // One of the tokens that begin() was given.
    TokenId random_token();

    // [columns()] what the target said behind the columns' last level: the window moves on by a token.
    void slide(std::span<const TokenId> guesses);
    // Whether all behind level 0 is the target's, not drawn any more.
    bool is_filled() const { return n_slides_ >= levels() - 1; }

  private:
    LookaheadOptions options_;
    std::vector<TokenId> drawn_from_;
    std::minstd_rand random_;
    std::vector<std::vector<TokenId>> levels_; // level 0 without column 0
    int n_slides_ = 0;
};

} // namespace entrodraft::spec
