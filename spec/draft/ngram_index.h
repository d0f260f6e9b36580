// Where the end of a text has occurred before in it: n-grams of several lengths, looked up and added in constant time
// a token.
//
// Knows nothing of drafting. Called by the n-gram drafter.
#pragma once

#include "spec/draft/lookup_index.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace entrodraft::spec {

enum class NgramMatch { latest, first };

struct NgramOptions {
    int shortest = 1; // --ngram-min
    int longest = 4;  // --ngram-max
    NgramMatch match = NgramMatch::latest;
    int full = 0; // --ngram-full: only matches that so many tokens follow in the text, and no more than these; 0: any
};

// Empty when usable; else what is wrong, naming the option. Local.
std::string why_invalid(const NgramOptions& options);

class NgramIndex final : public LookupIndex {
  public:
    using Match = LookupMatch;

    // Throws std::invalid_argument with why_invalid's words.
    explicit NgramIndex(const NgramOptions& options);

    void clear() override;
    void follow(std::span<const TokenId> text) override;
    // The longest n-gram at the end of the text that is found elsewhere in it, and followed by something, or by
    // NgramOptions::full tokens.
    std::optional<Match> find() const override;
    std::span<const TokenId> text() const override { return text_; }

  private:
    static std::uint64_t extend(std::uint64_t hash, TokenId token);
    void add(std::size_t end);
    bool agrees(std::size_t next, int length) const;

    NgramOptions options_;
    std::vector<TokenId> text_;
    // [length - shortest]: hash of an n-gram to the position behind it, the first or the latest
    std::vector<std::unordered_map<std::uint64_t, std::uint32_t>> tables_;
};

} // namespace entrodraft::spec
