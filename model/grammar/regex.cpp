// Regular expressions: those parts of ECMA-262's and Python's language that mean the same in both. What needs memory or
// looks around is refused by name. \d, \w, \s and their negations stand for ASCII characters alone.
#include "model/grammar/character_reader.h"

#include "model/utf8.h"

#include <fmt/format.h>

namespace entrodraft::model::grammar {

namespace {

const Characters kDigitRanges = {{'0', '9'}};
const Characters kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Characters kSpaceRanges = {{'\t', '\r'}, {' ', ' '}};
const Characters kAscii = {{0, 0x7F}};
const Characters kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser {
  public:
    // What an alternative that does not begin with ^, or end with $, has at that end.
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
            return one_of(reader_.bracket([&] { return escape(true); }));
        case '.':
            return one_of(negated(kLineEnds));
        case '\\':
            return one_of(escape(false));
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

    // (?<name>...) and (?P<name>...) are groups as any; all else behind (? is refused.
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
        reader_.take("?"); // which text is preferred does not matter here
        for (const char* more : {"*", "+", "?", "{"})
            if (reader_.sees(more))
                reader_.refuse("repeats of repeats need brackets; possessive ones are not supported");
        return part;
    }

    static Characters others_in_ascii(const Characters& characters) {
        return intersection(negated(characters), kAscii);
    }

    Characters escape(bool in_bracket) {
        const char32_t letter = reader_.next();
        const auto one = [](char32_t character) { return Characters{{character, character}}; };
        switch (letter) {
        case 'd':
            return kDigitRanges;
        case 'D':
            return others_in_ascii(kDigitRanges);
        case 'w':
            return kWord;
        case 'W':
            return others_in_ascii(kWord);
        case 's':
            return kSpaceRanges;
        case 'S':
            return others_in_ascii(kSpaceRanges);
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
            reader_.refuse(
                fmt::format("\\{} is not supported{}", static_cast<char>(letter), in_bracket ? " in brackets" : ""));
        return one(letter);
    }

    CharacterReader reader_;
    Expression around_;
};

// The same text as it is written within a string of JSON: a character one way where JSON has several.
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

// All of the text is as it says, so that ^ and $ change nothing.
Rules parse_regex(std::string_view text) {
    return {{{"root", RegexParser(text, sequence({})).parse()}}, "root"};
}

Expression json_string_with(std::string_view pattern) {
    const Expression around = repeat(one_of({{0, kMaxCharacter}}), 0, Expression::kUnbounded);
    return as_json(RegexParser(pattern, around).parse());
}

} // namespace entrodraft::model::grammar
