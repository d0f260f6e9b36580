// Keeps the texts of a run for look-ups, both current and ended ones. The last tokens of one text may occur in another,
// for example if both answer questions about one document.
//
// Knows nothing of drafting. Called by the look-up drafters: the indexes of all slots share one RunTexts.
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
    // Counts prompts too. With the tables a token takes about 60 bytes for each length of n-gram.
    static constexpr std::size_t kMaxTokens = std::size_t{1} << 18;

    // Finds n-grams of options.shortest to options.longest tokens by their latest occurrence; options.match has no
    // effect. options.full is as in an index of one text. Above `max_tokens` tokens the oldest ended texts are
    // forgotten, until half is left.
    explicit RunTexts(const NgramOptions& options, std::size_t max_tokens = kMaxTokens);

    // begin() starts a text and returns its number. end() says that it has ended, and may be forgotten.
    std::uint32_t begin();
    void end(std::uint32_t number) { texts_.at(number).has_ended = true; }
    // The text has grown, or is another.
    void follow(std::uint32_t number, std::span<const TokenId> text);
    // The longest n-gram at the end of text `number` whose latest occurrence is in another text. Tokens before it that
    // agree too make the match longer. Valid until a text next changes.
    std::optional<LookupMatch> find(std::uint32_t number) const;
    std::size_t n_tokens() const { return n_tokens_; }

  private:
    struct Text {
        std::vector<TokenId> tokens;
        bool has_ended = false;
    };
    struct Place {
        std::uint32_t text = 0;
        std::uint32_t next = 0; // after the n-gram
    };

    void add(std::uint32_t number, std::size_t end);
    void forget();

    NgramOptions options_;
    std::size_t max_tokens_, n_tokens_ = 0;
    std::uint32_t n_begun_ = 0;
    std::map<std::uint32_t, Text> texts_;                          // by number: the oldest first
    std::vector<std::unordered_map<std::uint64_t, Place>> tables_; // [length - shortest] of hashes
};

// An index that also looks in `texts` and adds its own text to them. The longer match counts; at equal length its own.
std::unique_ptr<LookupIndex> make_run_index(std::unique_ptr<LookupIndex> own, std::shared_ptr<RunTexts> texts);

} // namespace entrodraft::spec
