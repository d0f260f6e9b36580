// The texts of a run so far, those under way and those that have ended, for look-ups: the end of one text may be in
// another, as where they answer questions about one document.
//
// Knows nothing of drafting. Called by the look-up drafters, whose indexes of all slots share one.
#pragma once

#include "spec/draft/lookup_index.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace entrodraft::spec {

class RunTexts {
  public:
    // Of prompts too; with the tables about 60 bytes for each length of n-gram and token.
    static constexpr std::size_t kMaxTokens = std::size_t{1} << 18;

    // N-grams of options.shortest to options.longest tokens are found, by their latest occurrence, whatever
    // options.match; options.full as in an index of one text. Above `max_tokens` the oldest texts that have ended are
    // forgotten, until half is left.
    explicit RunTexts(const NgramOptions& options, std::size_t max_tokens = kMaxTokens);

    // A text begins; its number. It has ended, and may be forgotten.
    std::uint32_t begin();
    void end(std::uint32_t number) { texts_.at(number).has_ended = true; }
    // The text has grown, or is another.
    void follow(std::uint32_t number, std::span<const TokenId> text);
    // The longest n-gram at the end of text `number` whose latest occurrence is in another text, with as many tokens
    // before it as agree too. Good until a text next changes.
    std::optional<LookupMatch> find(std::uint32_t number) const;
    std::size_t n_tokens() const { return n_tokens_; }

  private:
    struct Text {
        std::vector<TokenId> tokens;
        bool has_ended = false;
    };
    struct Place {
        std::uint32_t text = 0;
        std::uint32_t next = 0; // behind the n-gram
    };

    void add(std::uint32_t number, std::size_t end);
    void forget();

    NgramOptions options_;
    std::size_t max_tokens_, n_tokens_ = 0;
    std::uint32_t n_begun_ = 0;
    std::map<std::uint32_t, Text> texts_;                          // by number: the oldest first
    std::vector<std::unordered_map<std::uint64_t, Place>> tables_; // [length - shortest] of hashes
};

// An index that looks in `texts` too, which it tells of its own, and takes the longer match, of equal ones its own.
std::unique_ptr<LookupIndex> make_run_index(std::unique_ptr<LookupIndex> own, std::shared_ptr<RunTexts> texts);

} // namespace entrodraft::spec
