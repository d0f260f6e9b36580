// The precompiled_charsmap of a SentencePiece model: a double-array trie of byte strings and their replacements. Called
// by normalizer (for tokenizer.json) and by sentencepiece_file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

class PrecompiledMap {
  public:
    // Throws BadFile with the reason. After that, look-ups never leave the data.
    explicit PrecompiledMap(std::string_view bytes);
    // Reads the form in tokenizer.json.
    static PrecompiledMap from_base64(std::string_view base64);

    // Replaces in valid UTF-8 as PyPI's tokenizers does, grapheme by grapheme. If a grapheme has fewer than 6 bytes and
    // the map has a beginning of it, the shortest such beginning's text replaces it. Else each of its characters is
    // looked up. Linear.
    std::string apply(std::string_view text) const;

    struct Replacement {
        std::string_view text; // in the map, or in the given text
        std::size_t n_bytes = 0;
    };
    // Returns the replacement of the longest beginning of the text that is in the map, as SentencePiece looks it up.
    std::optional<Replacement> longest(std::string_view text) const;

  private:
    std::optional<std::string_view> replacement(std::string_view chunk) const;
    std::string_view text_at(std::uint32_t offset) const;
    void check() const;

    std::vector<std::uint32_t> units_;
    std::string texts_; // each ends with a NUL
};

} // namespace entrodraft::model
