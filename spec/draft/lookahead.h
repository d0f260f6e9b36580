// Keeps the data of lookahead decoding (Fu et al. 2024) for one text: a pool of n-grams, and a window of guesses. The
// window's rows in the target's passes fill the pool.
//
// It knows no drafts, passes or acceptance. Called by lookahead_drafter.cpp.
#pragma once

#include "spec/verify/token_id.h"

#include <cstddef>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

namespace entrodraft::spec {

struct LookaheadOptions {
    int window = 2;     // W, columns of guesses
    int ngram = 3;      // N, tokens of an n-gram
    int candidates = 1; // G, most n-grams of the pool that a round verifies

    int window_tokens() const { return window * (ngram - 1) - 1; }
    // The most drafted tokens of a round.
    int max_tokens() const { return window_tokens() + candidates * (ngram - 1); }
};

// For each first token, the most recent n-grams that begin with it, each once.
class NgramPool {
  public:
    // `kept`: most n-grams of a first token.
    NgramPool(int ngram, int kept);

    void clear() { tails_.clear(); }
    // Adds an n-gram, [ngram], which becomes the most recent.
    void add(std::span<const TokenId> tokens);
    // The other ngram - 1 tokens of each n-gram that begins with `first`, one n-gram after another, the most recent
    // first. Valid until the next call of another function.
    std::span<const TokenId> tails_of(TokenId first) const;
    std::size_t tail_size() const { return tail_size_; }

  private:
    std::size_t tail_size_, kept_;
    std::unordered_map<TokenId, std::vector<TokenId>> tails_;
};

// Guesses of the coming tokens (Jacobi iteration): N - 1 levels of W columns. The token of level l, column c is a guess
// for l + c positions after the text's last token. Level 0, column 0 is that last token, which is not kept here. For
// each column, the target reads level 0 up to the column, then the column's further levels. Its own token after the
// last level is the column's next guess, and completes the column to an n-gram.
class LookaheadWindow {
  public:
    explicit LookaheadWindow(const LookaheadOptions& options) : options_(options) {}

    // Begins another text, with guesses drawn from these tokens. There must be at least one.
    void begin(std::span<const TokenId> tokens);
    int columns() const { return options_.window; }
    int levels() const { return options_.ngram - 1; }
    // For any place but level 0, column 0.
    TokenId guess(int level, int column) const;
    // One of the tokens that begin() was given.
    TokenId random_token();

    // Moves the window by a token. `guesses`: [columns()] the target's tokens after the columns' last level.
    void slide(std::span<const TokenId> guesses);
    // Returns whether all guesses after level 0 are the target's, and none is drawn any more.
    bool is_filled() const { return n_slides_ >= levels() - 1; }

  private:
    LookaheadOptions options_;
    std::vector<TokenId> drawn_from_;
    std::minstd_rand random_;
    std::vector<std::vector<TokenId>> levels_; // level 0 without column 0
    int n_slides_ = 0;
};

} // namespace entrodraft::spec
