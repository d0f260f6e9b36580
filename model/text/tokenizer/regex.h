// A compiled regular expression in Ruby's syntax over UTF-8, run by Oniguruma. The reference tokenizers use this
// engine, so patterns in a tokenizer.json mean the same here. It is not for user input. It also has the engine's
// character classes, for hand-written matchers. Called by pre_tokenizer, added_tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

struct Span {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
    bool operator==(const Span&) const = default;
};

class Regex {
  public:
    // Throws BadFile with the pattern and the engine's reason when it does not compile.
    explicit Regex(const std::string& pattern);

    // Returns all matches in valid UTF-8, left to right, not overlapping. An empty match right after a match is
    // skipped. Throws std::runtime_error when the engine gives up on a text.
    std::vector<Span> find_all(std::string_view text) const;

  private:
    std::string pattern_;
    std::shared_ptr<void> compiled_; // immutable once made: threads may share it
};

// The classes of each code point, one byte a code point, as in the reference's own tables. Each table has a Unicode
// version of its own, hence the corrections in regex.cpp.
class CharClasses {
  public:
    enum Class : std::uint8_t {
        letter = 1,       // \p{L}
        number = 2,       // \p{N} of the regex engine
        space = 4,        // White_Space
        word = 8,         // \w
        punctuation = 16, // \p{P} and the symbols of ASCII
        mark = 32,        // \p{M}
        numeric = 64,     // \p{N} of the Digits pre-tokenizer, whose Unicode is newer
    };

    CharClasses();
    bool is(char32_t code_point, unsigned classes) const { return (flags_[code_point] & classes) != 0; }
    unsigned of(char32_t code_point) const { return flags_[code_point]; }

  private:
    std::vector<std::uint8_t> flags_;
};

} // namespace entrodraft::model
