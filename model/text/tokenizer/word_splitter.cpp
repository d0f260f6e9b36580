// See word_splitter.h. Each matcher tries its pattern's alternatives in order at one position and returns the end of
// the word. Every position begins a word, because the last alternatives take all other text.
#include "model/text/tokenizer/word_splitter.h"

#include "model/files/utf8.h"

namespace entrodraft::model {
namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                                     R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                                    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr unsigned kLetter = CharClasses::letter;
constexpr unsigned kNumber = CharClasses::number;
constexpr unsigned kSpace = CharClasses::space;
constexpr unsigned kAny = kLetter | kNumber | kSpace;

bool is_newline(char32_t c) {
    return c == U'\r' || c == U'\n';
}

struct Text {
    std::string_view text; // ends where the piece ends
    const CharClasses& classes;

    bool at_end(std::size_t position) const { return position >= text.size(); }
    CodePoint at(std::size_t position) const { return code_point_at(text, position); }
    bool is(std::size_t position, unsigned wanted) const {
        return !at_end(position) && classes.is(at(position).value, wanted);
    }
    bool is_other(std::size_t position) const { return !at_end(position) && !classes.is(at(position).value, kAny); }

    // Returns the end of the run of characters of a class, or of none, that begins at `position`.
    std::size_t run(std::size_t position, unsigned wanted) const {
        while (is(position, wanted))
            position += at(position).n_bytes;
        return position;
    }
    std::size_t run_of_others(std::size_t position) const {
        while (is_other(position))
            position += at(position).n_bytes;
        return position;
    }
    std::size_t run_of_newlines(std::size_t position) const {
        while (!at_end(position) && is_newline(static_cast<unsigned char>(text[position])))
            ++position;
        return position;
    }
};

// Returns a letter of a contraction, in lower case if case is ignored: U+017F, the long s, folds to s.
CodePoint folded(const Text& t, std::size_t position, bool ignore_case) {
    CodePoint point = t.at(position);
    if (!ignore_case) return point;
    if (point.value >= U'A' && point.value <= U'Z') point.value += U'a' - U'A';
    if (point.value == 0x17F) point.value = U's';
    return point;
}

// Matches 's 't 're 've 'm 'll 'd: returns the end of the contraction at `position`, or `position` if there is none.
std::size_t contraction(const Text& t, std::size_t position, bool ignore_case) {
    if (t.text[position] != '\'' || t.at_end(position + 1)) return position;
    const CodePoint first = folded(t, position + 1, ignore_case);
    const std::size_t second_at = position + 1 + first.n_bytes;
    switch (first.value) {
    case U's':
    case U't':
    case U'm':
    case U'd':
        return second_at;
    case U'r':
    case U'v':
    case U'l': {
        if (t.at_end(second_at)) return position;
        const CodePoint second = folded(t, second_at, ignore_case);
        return second.value == (first.value == U'l' ? U'l' : U'e') ? second_at + second.n_bytes : position;
    }
    default:
        return position;
    }
}

// Matches \s+(?!\S)|\s+ : white space without its last character, which belongs to the next word, if any.
std::size_t white_space(const Text& t, std::size_t position, std::size_t end_of_run) {
    if (t.at_end(end_of_run)) return end_of_run;
    const std::size_t last = previous_code_point(t.text, end_of_run);
    return last > position ? last : end_of_run;
}

std::size_t gpt2_word(const Text& t, std::size_t position) {
    if (const std::size_t end = contraction(t, position, false); end > position) return end;
    const std::size_t word = position + (t.text[position] == ' ' ? 1 : 0);
    if (t.is(word, kLetter)) return t.run(word, kLetter);
    if (t.is(word, kNumber)) return t.run(word, kNumber);
    if (t.is_other(word)) return t.run_of_others(word);
    return white_space(t, position, t.run(position, kSpace));
}

std::size_t llama3_word(const Text& t, std::size_t position, int max_digits) {
    if (const std::size_t end = contraction(t, position, true); end > position) return end;
    const CodePoint first = t.at(position);
    if (t.is(position, kLetter)) return t.run(position, kLetter);
    if (t.is(position, kNumber)) {
        std::size_t end = position;
        for (int digit = 0; digit < max_digits && t.is(end, kNumber); ++digit)
            end += t.at(end).n_bytes;
        return end;
    }
    if (!is_newline(first.value) && t.is(position + first.n_bytes, kLetter)) {
        return t.run(position + first.n_bytes, kLetter);
    }
    const std::size_t word = position + (first.value == U' ' ? 1 : 0);
    if (t.is_other(word)) return t.run_of_newlines(t.run_of_others(word));
    const std::size_t end_of_run = t.run(position, kSpace);
    // This is \s*[\r\n]+ : up to the last newline of the run.
    for (std::size_t end = end_of_run; end > position; --end) {
        if (is_newline(static_cast<unsigned char>(t.text[end - 1]))) return end;
    }
    return white_space(t, position, end_of_run);
}

} // namespace

std::string_view expression_of(WordPattern pattern) {
    return pattern == WordPattern::gpt2 ? kGpt2 : pattern == WordPattern::llama3 ? kLlama3 : kQwen2;
}

std::optional<WordPattern> known_pattern(std::string_view expression) {
    for (const WordPattern pattern : {WordPattern::gpt2, WordPattern::llama3, WordPattern::qwen2})
        if (expression == expression_of(pattern)) return pattern;
    return std::nullopt;
}

void split_words(WordPattern pattern, const CharClasses& classes, std::string_view text, Span span,
                 std::vector<Span>& words) {
    const Text t{span.of(text), classes};
    for (std::size_t position = 0; position < t.text.size();) {
        const std::size_t end = pattern == WordPattern::gpt2
                                    ? gpt2_word(t, position)
                                    : llama3_word(t, position, pattern == WordPattern::llama3 ? 3 : 1);
        words.push_back({span.begin + position, span.begin + end});
        position = end;
    }
}

} // namespace entrodraft::model
