// Guesses which tokens a draft model will draft next, from what followed the same last tokens before. A pass of the
// model then reads the guessed tokens, too, and those that the model drafts itself cost no further pass. So guesses
// change the number of passes, and never a drafted token (Chen et al. 2023: Cascade Speculative Drafting, whose
// smallest drafter is a table, too).
//
// All texts of a replica share one memory. It is built like a processor's branch predictor (Seznec, Michaud 2006:
// TAGE). There is a table for each number of last tokens. Of the entries that know the text's last tokens, one guesses
// whose like were right most often.
#pragma once

#include "spec/verify/token_id.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace entrodraft::spec {

class TokenGuesses {
  public:
    TokenGuesses();

    // Takes note of the last token of `text`, which followed the tokens before it.
    void learn(std::span<const TokenId> text);
    // Adds to `text` the tokens that are likely to follow, at most `most`. The model drafts all of them with a chance
    // of kLeastChance or more.
    void extend(std::vector<TokenId>& text, int most) const;

    // A further row takes 0.02 (4-bit weights, VNNI) to 0.2 (float32) of a pass, and a right one saves a pass.
    static constexpr double kLeastChance = 0.2;

  private:
    static constexpr int kLongest = 4; // last tokens
    static constexpr std::size_t kEntries = std::size_t{1} << 15;
    static constexpr int kMostRight = 3;

    struct Entry {
        std::uint32_t tag = 0;  // a part of the hash that is not the entry's place
        TokenId token = -1;     // that followed; -1: the entry is empty
        std::int32_t right = 0; // how often in a row it was right, up to kMostRight
    };
    struct Guess {
        TokenId token = -1; // -1: none
        std::size_t table = 0;
        std::int32_t right = 0;
    };
    using Chances = std::array<double, kMostRight + 1>; // [Entry::right] that a guess is right

    Guess next(std::span<const TokenId> text) const;

    std::vector<Entry> entries_;              // [last tokens - 1][kEntries]
    std::array<Chances, kLongest> chances_{}; // [last tokens - 1]
};

} // namespace entrodraft::spec
