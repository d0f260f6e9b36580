// Declares the interface of an index for drafters without a model. The index finds where the text's last tokens
// occurred before, and what followed.
//
// It knows nothing of drafting, stop rules or distributions. Made in ngram_drafter.cpp and suffix_drafter.cpp.
#pragma once

#include "spec/verify/token_id.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace entrodraft::spec {

class LookupCorpus;

// The last `length` tokens of a text are also in `source`, right before `next`.
struct LookupMatch {
    std::size_t next = 0; // position in `source` of the token that followed them there
    int length = 0;
    std::span<const TokenId> source = {}; // the text itself or a corpus; of the index, as it was at find()
    bool in_corpus = false;
    std::size_t most = SIZE_MAX; // most tokens of the continuation that count

    // Token i of the continuation, i >= 0. In the text itself it has no end: it goes on with copied tokens, so that a
    // text that repeats itself is continued, however short its period. In a corpus it ends with the corpus.
    std::optional<TokenId> token(std::size_t i) const {
        if (next >= source.size() || i >= most) return std::nullopt;
        if (i < source.size() - next) return source[next + i];
        if (in_corpus) return std::nullopt;
        return source[next + i % (source.size() - next)];
    }
};

// The index of one sequence. Another sequence has another index.
class LookupIndex {
  public:
    virtual ~LookupIndex() = default;
    // The text has grown, or is another. Tokens that it shares with the old text are not added again.
    virtual void follow(std::span<const TokenId> text) = 0;
    // The best match of the end of the text, which has a continuation in its source. Valid until the text next changes.
    virtual std::optional<LookupMatch> find() const = 0;
};

enum class NgramMatch { latest, first };

// The texts that look-ups search next to a corpus: the text itself, or all texts of the replica's run so far.
enum class LookupTexts { own, run };

// Tokens that match, and which match of several counts.
struct NgramOptions {
    static constexpr int kMaxLength = 64;
    int shortest = 1;
    int longest = 4;
    NgramMatch match = NgramMatch::latest;
    int full = 0; // only matches that this number of tokens follow in the text, and only these; 0: any
};
// Finds the longest n-gram at the end of the text that also occurs elsewhere in it, followed by a token, or by
// NgramOptions::full tokens. It takes constant time a token. Throws std::invalid_argument with why_invalid's words.
std::unique_ptr<LookupIndex> make_ngram_index(const NgramOptions& options);

// Finds the longest suffix of the text, of at least `shortest` tokens, that also ends earlier in it or is in the corpus
// (may be null), and has a continuation there. With equal lengths the text counts. In the text it is the latest
// occurrence (but see SuffixAutomaton::match), in the corpus the one of LookupCorpus::match. Throws
// std::invalid_argument unless shortest >= 1.
std::unique_ptr<LookupIndex> make_suffix_index(int shortest, std::shared_ptr<const LookupCorpus> corpus = nullptr);

} // namespace entrodraft::spec
