// Remembers the ids of short words while a text is encoded, because words recur. Each text has its own object, so that
// a model can serve many threads. It remembers at most kMaxWords words. Called by bpe and unigram.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/text/token_id.h"

namespace entrodraft::model {

class WordCache {
  public:
    // Appends the word's ids if it is known.
    bool append(std::string_view word, std::vector<TokenId>& ids) const {
        const auto known = words_.find(word);
        if (known == words_.end()) return false;
        const auto begin = ids_.begin() + known->second.begin;
        ids.insert(ids.end(), begin, begin + known->second.size);
        return true;
    }

    // Remembers ids[first..] for the word, if it is short and there is room.
    void remember(std::string_view word, const std::vector<TokenId>& ids, std::size_t first) {
        if (word.size() > kMaxWordBytes || words_.size() >= kMaxWords) return;
        words_.emplace(word,
                       Place{static_cast<std::uint32_t>(ids_.size()), static_cast<std::uint32_t>(ids.size() - first)});
        ids_.insert(ids_.end(), ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
    }

  private:
    static constexpr std::size_t kMaxWords = 1 << 16;
    static constexpr std::size_t kMaxWordBytes = 64;

    struct Place {
        std::uint32_t begin = 0, size = 0; // in ids_
    };
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>{}(word); }
    };

    std::unordered_map<std::string, Place, Hash, std::equal_to<>> words_;
    std::vector<TokenId> ids_;
};

} // namespace entrodraft::model
