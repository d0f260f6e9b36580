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
    bool operator==(const Span&) const = default;
};

class Regex {
  public:
    // Throws BadFile with the pattern and the engine's reason when it does not compile. Local.
    explicit Regex(const std::string& pattern);

    // All matches in valid UTF-8, left to right, not overlapping; an empty match right after a match is passed
    // over. Throws std::runtime_error when the engine gives up on a text. Local.
    std::vector<Span> find_all(std::string_view text) const;

  private:
    std::string pattern_;
    std::shared_ptr<void> compiled_; // immutable once made: threads may share it
};

// Which of a few classes each code point is of, by the tables of the regex engine and, where these are older, of
// Unicode 16: one byte a code point.
class CharClasses {
  public:
    enum Class : std::uint8_t { letter = 1, number = 2, space = 4, word = 8 }; // \p{L}, \p{N}, \s, \w of Unicode

    CharClasses();
    bool is(char32_t code_point, unsigned classes) const { return (flags_[code_point] & classes) != 0; }
    unsigned of(char32_t code_point) const { return flags_[code_point]; }

  private:
    std::vector<std::uint8_t> flags_;
};

} // namespace entrodraft::model
