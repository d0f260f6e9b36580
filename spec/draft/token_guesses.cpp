#include "spec/draft/token_guesses.h"

#include "spec/draft/ngram_hash.h"

#include <algorithm>

namespace entrodraft::spec {

namespace {

constexpr double kFirstChance = 0.5; // before any guess

std::uint32_t tag_of(std::uint64_t hash) {
    return static_cast<std::uint32_t>(hash >> 32);
}

} // namespace

TokenGuesses::TokenGuesses() : entries_(kLongest * kEntries) {
    for (Chances& of_table : chances_)
        of_table.fill(kFirstChance);
}

TokenGuesses::Guess TokenGuesses::next(std::span<const TokenId> text) const {
    Guess guess;
    for_each_ngram(text, {.shortest = 1, .longest = kLongest}, [&](std::size_t table, std::uint64_t hash) {
        const Entry& entry = entries_[table * kEntries + hash % kEntries];
        if (entry.token >= 0 && entry.tag == tag_of(hash) &&
            (guess.token < 0 || chances_[table][entry.right] >= chances_[guess.table][guess.right]))
            guess = {entry.token, table, entry.right};
        return true;
    });
    return guess;
}

void TokenGuesses::learn(std::span<const TokenId> text) {
    constexpr double kStep = 1.0 / 64;
    const TokenId token = text.back();
    const std::span<const TokenId> before = text.first(text.size() - 1);
    for_each_ngram(before, {.shortest = 1, .longest = kLongest}, [&](std::size_t table, std::uint64_t hash) {
        Entry& entry = entries_[table * kEntries + hash % kEntries];
        if (entry.token >= 0 && entry.tag == tag_of(hash)) {
            double& chance = chances_[table][entry.right];
            chance += kStep * ((entry.token == token ? 1 : 0) - chance);
        }
        if (entry.tag == tag_of(hash) && entry.token == token)
            entry.right = std::min(entry.right + 1, kMostRight);
        else
            entry = {tag_of(hash), token, 0};
        return true;
    });
}

void TokenGuesses::extend(std::vector<TokenId>& text, int most) const {
    double chance = 1;
    for (; most > 0; --most) {
        const Guess guess = next(text);
        if (guess.token < 0) return;
        chance *= chances_[guess.table][guess.right];
        if (chance < kLeastChance) return;
        text.push_back(guess.token);
    }
}

} // namespace entrodraft::spec
