// The pool and the window of lookahead decoding: see lookahead.h.
#include "spec/draft/lookahead.h"

#include <algorithm>

namespace entrodraft::spec {

// ---- the pool ----

NgramPool::NgramPool(int ngram, int kept)
    : tail_size_(static_cast<std::size_t>(ngram - 1)), kept_(static_cast<std::size_t>(kept)) {}

void NgramPool::add(std::span<const TokenId> tokens) {
    const std::span<const TokenId> tail = tokens.subspan(1);
    std::vector<TokenId>& tails = tails_[tokens.front()];
    auto at = tails.begin();
    while (at != tails.end() && !std::equal(tail.begin(), tail.end(), at))
        at += static_cast<std::ptrdiff_t>(tail_size_);
    if (at == tails.end()) {
        if (tails.size() < kept_ * tail_size_) tails.insert(tails.end(), tail.begin(), tail.end());
        at = tails.end() - static_cast<std::ptrdiff_t>(tail_size_); // the oldest makes room
        std::copy(tail.begin(), tail.end(), at);
    }
    std::rotate(tails.begin(), at, at + static_cast<std::ptrdiff_t>(tail_size_));
}

std::span<const TokenId> NgramPool::tails_of(TokenId first) const {
    const auto found = tails_.find(first);
    return found == tails_.end() ? std::span<const TokenId>() : found->second;
}

// ---- the window ----

void LookaheadWindow::begin(std::span<const TokenId> tokens) {
    drawn_from_.assign(tokens.begin(), tokens.end());
    random_.seed();
    n_slides_ = 0;
    levels_.assign(static_cast<std::size_t>(levels()), std::vector<TokenId>(static_cast<std::size_t>(columns())));
    levels_.front().pop_back();
    for (std::vector<TokenId>& level : levels_)
        std::ranges::generate(level, [&] { return random_token(); });
}

TokenId LookaheadWindow::random_token() {
    return drawn_from_[random_() % drawn_from_.size()];
}

TokenId LookaheadWindow::guess(int level, int column) const {
    return levels_.at(level).at(level == 0 ? column - 1 : column);
}

// It moves by one token even if more were emitted, as the authors' own program does.
void LookaheadWindow::slide(std::span<const TokenId> guesses) {
    levels_.emplace_back(guesses.begin(), guesses.end());
    levels_.erase(levels_.begin());
    levels_.front().erase(levels_.front().begin());
    ++n_slides_;
}

} // namespace entrodraft::spec
