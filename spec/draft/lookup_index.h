// What a drafter without a model asks of an index: where has the end of the text appeared before, and what came then?
//
// Knows nothing of drafting, stop rules or distributions. Made in ngram_drafter.cpp and suffix_drafter.cpp.
#pragma once

#include "spec/verify/token_id.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace entrodraft::spec {

class LookupCorpus;

// The last `length` tokens of a text are also in `source`, right before `next`.
struct LookupMatch {
    std::size_t next = 0; // position in `source` of the token that came after them then
    int length = 0;
    std::span<const TokenId> source = {}; // the text itself or a corpus; of the index, and as it was at find()
    bool in_corpus = false;
    std::size_t most = SIZE_MAX; // tokens of the continuation that count

    // Token i of the continuation, i >= 0. One from the text itself has no end: it goes on with what has been copied,
    // so that a text that repeats itself is continued however short its period. One from a corpus ends with it.
    std::optional<TokenId> token(std::size_t i) const {
        if (next >= source.size() || i >= most) return std::nullopt;
        if (i < source.size() - next) return source[next + i];
        if (in_corpus) return std::nullopt;
        return source[next + i % (source.size() - next)];
    }
};

class LookupIndex {
  public:
    virtual ~LookupIndex() = default;
    // Another text begins; what is fixed, as a corpus, stays.
    virtual void clear() = 0;
    // The text has grown, or is another: tokens that it shares with the one before are not added again.
    virtual void follow(std::span<const TokenId> text) = 0;
    // The best match of the end of the text; its source is followed by something there. Good until the text next
    // changes.
    virtual std::optional<LookupMatch> find() const = 0;
};

enum class NgramMatch { latest, first };

// Where look-ups look, beside a corpus: in the text itself, or in all texts of the replica's run so far.
enum class LookupTexts { own, run };

struct NgramOptions {
    int shortest = 1; // --ngram-min
    int longest = 4;  // --ngram-max
    NgramMatch match = NgramMatch::latest;
    int full = 0; // --ngram-full: only matches that so many tokens follow in the text, and no more than these; 0: any
};
// Empty when usable; else what is wrong, naming the option.
std::string why_invalid(const NgramOptions& options);
// Finds the longest n-gram at the end of the text that is elsewhere in it, and followed by something, or by
// NgramOptions::full tokens: in constant time a token. Throws std::invalid_argument with why_invalid's words.
std::unique_ptr<LookupIndex> make_ngram_index(const NgramOptions& options);

// Finds the longest suffix of the text, at least `shortest` tokens, that also ends earlier in it or is in the corpus
// (may be null), followed by something; of equal lengths that of the text. In the text its latest occurrence (but see
// SuffixAutomaton::match), in the corpus the one that LookupCorpus::match finds. Throws std::invalid_argument unless
// shortest >= 1.
std::unique_ptr<LookupIndex> make_suffix_index(int shortest, std::shared_ptr<const LookupCorpus> corpus = nullptr);

} // namespace entrodraft::spec
