// A compiled regular expression in Ruby's syntax over UTF-8, as Oniguruma understands it: the engine that the
// reference tokenizers use, so that patterns in a tokenizer.json mean the same here. Not for user input.
// Also the character classes of that engine, for hand-written matchers. Called by pre_tokenizer, added_tokens.
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

    // All matches in valid UTF-8, left to right, not overlapping; an empty match right after a match is passed
    // over. Throws std::runtime_error when the engine gives up on a text.
    std::vector<Span> find_all(std::string_view text) const;

  private:
    std::string pattern_;
    std::shared_ptr<void> compiled_; // immutable once made: threads may share it
};

// Which of a few classes each code point is of, as the reference's own tables have it (each of a Unicode version of
// its own, hence the corrections in regex.cpp): one byte a code point.
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
