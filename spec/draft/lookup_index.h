// What a drafter without a model asks of an index: where has the end of the text appeared before, and what came then?
//
// Knows nothing of drafting, stop rules or distributions. Implemented by NgramIndex and SuffixIndex.
#pragma once

#include "spec/packet.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace entrodraft::spec {

// The last `length` tokens of a text are also in `source`, right before `next`.
struct LookupMatch {
    std::size_t next = 0; // position in `source` of the token that came after them then
    int length = 0;
    std::span<const TokenId> source = {}; // the text itself or a corpus; of the index, and as it was at find()
    bool in_corpus = false;
    std::size_t most = SIZE_MAX; // tokens of the continuation that count

    // Token i of the continuation, i >= 0. One from the text itself has no end: it goes on with what has been copied,
    // so that a text that repeats itself is continued however short its period. One from a corpus ends with it. Local.
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
    // Another text begins; what is fixed, as a corpus, stays. Local.
    virtual void clear() = 0;
    // The text has grown, or is another: tokens that it shares with the one before are not added again. Local.
    virtual void follow(std::span<const TokenId> text) = 0;
    // The best match of the end of the text; its source is followed by something there. Good until the text next
    // changes. Local.
    virtual std::optional<LookupMatch> find() const = 0;
    virtual std::span<const TokenId> text() const = 0;
};

} // namespace entrodraft::spec
