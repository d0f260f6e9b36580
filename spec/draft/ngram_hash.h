// Hashes the n-grams at the end of a text. The hash of each length is computed from that of the length before. Private
// to the look-ups.
#pragma once

#include "spec/draft/lookup_index.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace entrodraft::spec {

// For each length from options.shortest to options.longest, calls `take` with length - options.shortest and the hash of
// the last `length` tokens, while it returns true. Hashes of different n-grams may be equal.
template <typename Take>
void for_each_ngram(std::span<const TokenId> text, const NgramOptions& options, const Take& take) {
    std::uint64_t hash = 0;
    const auto longest = static_cast<std::size_t>(options.longest),
               shortest = static_cast<std::size_t>(options.shortest);
    for (std::size_t length = 1; length <= longest && length <= text.size(); ++length) {
        hash ^=
            static_cast<std::uint32_t>(text[text.size() - length]) + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
        hash *= 0xff51afd7ed558ccdu;
        if (length >= shortest && !take(length - shortest, hash)) return;
    }
}

} // namespace entrodraft::spec
