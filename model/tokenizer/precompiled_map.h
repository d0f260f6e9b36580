// The precompiled_charsmap of a SentencePiece model: a double-array trie of byte strings and what each is replaced
// by. Read here as the reference reads it, its oddities included. Called by normalizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

class PrecompiledMap {
  public:
    // From base64 as in tokenizer.json. Throws BadFile with the reason; afterwards no look-up leaves the data. Local.
    explicit PrecompiledMap(std::string_view base64);

    // Replaces in valid UTF-8, grapheme by grapheme. A grapheme below 6 bytes of which any beginning is in the map
    // becomes what the shortest such beginning maps to; else each of its characters is looked up. Linear. Local.
    std::string apply(std::string_view text) const;

  private:
    std::optional<std::string_view> replacement(std::string_view chunk) const;
    std::string_view text_at(std::uint32_t offset) const;
    void check() const;

    std::vector<std::uint32_t> units_;
    std::string texts_; // each ends with a NUL
};

} // namespace entrodraft::model
