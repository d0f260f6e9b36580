// Reads grammar text character by character. Also reads the parts that all grammar languages share: classes in
// brackets, escapes, numbers of repeats. Called by gbnf.cpp and regex.cpp.
#pragma once

#include "model/text/grammar/expression.h"

#include <optional>
#include <string_view>

namespace entrodraft::model::grammar {

class CharacterReader {
  public:
    // `text` is valid UTF-8 and outlives the reader.
    explicit CharacterReader(std::string_view text) : text_(text) {}

    bool at_end() const { return at_ == text_.size(); }
    // Returns whether `what` comes next; take() reads it if so.
    bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }
    bool take(std::string_view what);
    char32_t peek() const; // 0 at the end
    char32_t next();       // throws BadGrammar at the end
    std::size_t position() const { return at_; }
    [[noreturn]] void refuse(const std::string& why) const; // names line and column

    // Reads `n_digits` hexadecimal digits, after "\x", "\u" or "\U".
    char32_t hexadecimal(int n_digits);
    // Reads "*", "+", "?", "{m}", "{m,}" or "{m,n}" as the least and the most repeats; nothing if none is next.
    std::optional<std::pair<int, int>> take_repeats();
    // Reads from after "[" to "]". `escape(is_negated)` reads the text after a backslash.
    template <typename Escape> Characters bracket(Escape escape);

  private:
    std::pair<int, int> counted_repeats(); // after "{"

    std::string_view text_;
    std::size_t at_ = 0;
};

template <typename Escape> Characters CharacterReader::bracket(Escape escape) {
    const bool is_negated = take("^");
    if (sees("]")) refuse("brackets are empty");
    Characters characters;
    while (!take("]")) {
        const auto one = [&]() -> Characters {
            const char32_t character = next();
            return character == '\\' ? escape(is_negated) : Characters{{character, character}};
        };
        Characters first = one();
        const bool is_one = first.size() == 1 && first[0].first == first[0].last;
        if (sees("-") && !sees("-]")) {
            next();
            const Characters last = one();
            if (!is_one || last.size() != 1 || last[0].first != last[0].last || last[0].first < first[0].first)
                refuse("a range in brackets must go from one character to a later one");
            first = {{first[0].first, last[0].first}};
        }
        characters.insert(characters.end(), first.begin(), first.end());
    }
    return is_negated ? negated(std::move(characters)) : characters;
}

} // namespace entrodraft::model::grammar
