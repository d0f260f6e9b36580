// Regular expressions: the parts of ECMA-262's and Python's languages that mean the same in both. Constructs that need
// memory or look-around are refused by name. \d, \w, \s and their negations mean only ASCII characters. In [^...], each
// of them excludes every character that it means in either language. So all texts match in both languages.
#include "model/text/grammar/character_reader.h"

#include <fmt/format.h>
#include <optional>
#include <utf8proc.h>

namespace entrodraft::model::grammar {

namespace {

const Characters kDigitRanges = {{'0', '9'}};
const Characters kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Characters kSpaceRanges = {{'\t', '\r'}, {' ', ' '}};
const Characters kAscii = {{0, 0x7F}};
const Characters kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
// Every character that is white space in Python (str.isspace) or in ECMA-262 (WhiteSpace, LineTerminator).
const Characters kAnySpace = {{'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},
                              {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                              {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

bool is_any_digit(utf8proc_category_t category) {
    return category == UTF8PROC_CATEGORY_ND;
}
// Does the same as str.isalnum.
bool is_any_word(utf8proc_category_t category) {
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
           (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

// Returns `ascii` and the other characters of these categories. A character without a category is included, because a
// later version of Unicode may give it one.
Characters with_categories(Characters ascii, bool (*holds)(utf8proc_category_t)) {
    for (char32_t character = 0x80; character <= kMaxCharacter; ++character) {
        const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
        if (category != UTF8PROC_CATEGORY_CN && !holds(category)) continue;
        if (ascii.back().last + 1 == character)
            ascii.back().last = character;
        else
            ascii.push_back({character, character});
    }
    return ascii;
}

const Characters& any_digit() {
    static const Characters made = with_categories(kDigitRanges, is_any_digit);
    return made;
}

const Characters& any_word() {
    static const Characters made = with_categories(kWord, is_any_word);
    return made;
}

class RegexParser {
  public:
    // `around`: put at the beginning of an alternative without ^, and at the end of one without $.
    RegexParser(std::string_view text, Expression around) : reader_(text), around_(std::move(around)) {}

    Expression parse() {
        Expression made = read_choice(0);
        if (!reader_.at_end()) reader_.refuse(") has no (");
        return made;
    }

  private:
    Expression read_choice(int depth) {
        if (depth > kMaxNesting) reader_.refuse(fmt::format("brackets are nested deeper than {}", kMaxNesting));
        std::vector<Expression> parts;
        do {
            parts.push_back(read_sequence(depth));
        } while (reader_.take("|"));
        return choice(std::move(parts));
    }

    Expression read_sequence(int depth) {
        std::vector<Expression> parts;
        if (depth == 0 && !reader_.take("^")) parts.push_back(around_);
        for (;;) {
            const char32_t next = reader_.peek();
            const bool is_end = reader_.at_end() || next == '|' || next == ')';
            if (is_end && depth == 0) parts.push_back(around_);
            if (is_end) return sequence(std::move(parts));
            if (depth == 0 && (reader_.sees("$|") || (reader_.sees("$") && is_last()))) {
                reader_.next();
                return sequence(std::move(parts));
            }
            parts.push_back(read_repeats(read_part(depth)));
        }
    }

    bool is_last() const {
        CharacterReader ahead = reader_;
        ahead.next();
        return ahead.at_end();
    }

    Expression read_part(int depth) {
        const char32_t character = reader_.next();
        switch (character) {
        case '[':
            return one_of(reader_.bracket(
                [&](bool is_negated) { return escape(is_negated ? In::negated_bracket : In::bracket); }));
        case '.':
            return one_of(negated(kLineEnds));
        case '\\':
            return one_of(escape(In::text));
        case '(': {
            if (reader_.take("?") && !reader_.take(":")) read_group_name();
            Expression inner = read_choice(depth + 1);
            if (!reader_.take(")")) reader_.refuse(") is missing");
            return inner;
        }
        case '^':
        case '$':
            reader_.refuse("^ and $ may be at the ends of the expression, or of its outermost alternatives, alone");
        case '*':
        case '+':
        case '?':
        case '{':
            reader_.refuse("nothing is there to repeat");
        default:
            return one_of({{character, character}});
        }
    }

    // Reads (?<name>...) and (?P<name>...), which are groups as any; other constructs with (? are refused.
    void read_group_name() {
        const bool has_name = reader_.take("P<") ||
                              (reader_.sees("<") && !reader_.sees("<=") && !reader_.sees("<!") && reader_.take("<"));
        if (!has_name) reader_.refuse("(?= (?! (?<= (?<! and flags are not supported");
        while (!reader_.take(">"))
            reader_.next();
    }

    Expression read_repeats(Expression part) {
        const auto repeats = reader_.take_repeats();
        if (!repeats) return part;
        part = repeat(std::move(part), repeats->first, repeats->second);
        reader_.take("?"); // the preferred text does not matter here
        for (const char* more : {"*", "+", "?", "{"})
            if (reader_.sees(more))
                reader_.refuse("repeats of repeats need brackets; possessive ones are not supported");
        return part;
    }

    enum class In { text, bracket, negated_bracket };

    // Returns the characters that a class means in both languages; in [^...], those that it means in either.
    static std::optional<Characters> class_of(char32_t letter, In place) {
        const bool is_any = place == In::negated_bracket;
        const auto others = [&](const Characters& least, const Characters& any) {
            return is_any ? negated(least) : intersection(negated(any), kAscii);
        };
        switch (letter) {
        case 'd':
            return is_any ? any_digit() : kDigitRanges;
        case 'D':
            return others(kDigitRanges, kDigitRanges);
        case 'w':
            return is_any ? any_word() : kWord;
        case 'W':
            return others(kWord, kWord);
        case 's':
            return is_any ? kAnySpace : kSpaceRanges;
        case 'S':
            return others(kSpaceRanges, kAnySpace);
        default:
            return std::nullopt;
        }
    }

    Characters escape(In place) {
        const char32_t letter = reader_.next();
        if (auto found = class_of(letter, place)) return *std::move(found);
        const auto one = [](char32_t character) { return Characters{{character, character}}; };
        switch (letter) {
        case 'n':
            return one('\n');
        case 'r':
            return one('\r');
        case 't':
            return one('\t');
        case 'f':
            return one('\f');
        case 'v':
            return one('\v');
        case 'x':
            return one(reader_.hexadecimal(2));
        case 'u':
            return one(reader_.hexadecimal(4));
        default:
            break;
        }
        const bool is_letter =
            (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
        if (is_letter)
            reader_.refuse(fmt::format("\\{} is not supported{}", static_cast<char>(letter),
                                       place == In::text ? "" : " in brackets"));
        return one(letter);
    }

    CharacterReader reader_;
    Expression around_;
};

// Returns the same text as it is written in a JSON string. Where JSON has several ways to write a character, uses one.
Expression as_json(const Expression& expression) {
    if (expression.kind == Expression::Kind::characters) {
        const Characters plain = negated({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
        std::vector<Expression> parts = {one_of(intersection(expression.characters, plain))};
        for (const CharacterRange& range : intersection(expression.characters, negated(plain)))
            for (char32_t character = range.first; character <= range.last; ++character) {
                const std::size_t at = std::string_view("\b\t\n\f\r\"\\").find(static_cast<char>(character));
                parts.push_back(literal(at != std::string_view::npos
                                            ? fmt::format("\\{}", "btnfr\"\\"[at])
                                            : fmt::format("\\u{:04x}", static_cast<unsigned>(character))));
            }
        return choice(std::move(parts));
    }
    Expression made = expression;
    for (Expression& part : made.parts)
        part = as_json(part);
    return made;
}

} // namespace

// The whole text must match, so ^ and $ change nothing.
Rules parse_regex(std::string_view text) {
    return {{{"root", RegexParser(text, sequence({})).parse()}}, "root"};
}

Expression json_string_with(std::string_view pattern) {
    const Expression around = repeat(one_of({{0, kMaxCharacter}}), 0, Expression::kUnbounded);
    return as_json(RegexParser(pattern, around).parse());
}

} // namespace entrodraft::model::grammar
