// Grammars in llama.cpp's notation (GBNF). Example: `root ::= "a" [b-d]* (x | y){2,3}`. There is one rule for each
// name, and # begins a comment. A rule ends with its line, except within parentheses and after `|` and `::=`.
#include "model/text/grammar/character_reader.h"

#include "model/files/bad_file.h"
#include "model/files/utf8.h"

#include <fmt/format.h>

namespace entrodraft::model::grammar {

namespace {

class GbnfParser {
  public:
    explicit GbnfParser(std::string_view text) : reader_(text) {}

    Rules parse() {
        Rules rules;
        for (skip(true); !reader_.at_end(); skip(true)) {
            const std::string name = read_name();
            skip(false);
            if (!reader_.take("::=")) reader_.refuse("::= must follow the name of a rule");
            skip(true);
            Expression expression = read_choice(0);
            if (!reader_.at_end() && reader_.peek() != '\n') reader_.refuse("a rule must end with its line");
            if (!rules.by_name.emplace(name, std::move(expression)).second)
                reader_.refuse("rule " + in_quotes(name) + " is there twice");
        }
        return rules;
    }

  private:
    // Skips blanks and comments, and the ends of lines where these have no meaning.
    void skip(bool over_lines) {
        for (;;) {
            const char32_t next = reader_.peek();
            if (reader_.at_end()) return;
            if (next == '#')
                while (!reader_.at_end() && reader_.peek() != '\n')
                    reader_.next();
            else if (next == ' ' || next == '\t' || next == '\r' || (over_lines && next == '\n'))
                reader_.next();
            else
                return;
        }
    }

    static bool is_of_name(char32_t c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    }
    std::string read_name() {
        std::string name;
        while (is_of_name(reader_.peek()))
            name += static_cast<char>(reader_.next());
        if (name.empty()) reader_.refuse("the name of a rule must come here");
        return name;
    }

    Expression read_choice(int depth) {
        if (depth > kMaxNesting) reader_.refuse(fmt::format("brackets are nested deeper than {}", kMaxNesting));
        std::vector<Expression> parts;
        do {
            skip(depth > 0 || !parts.empty());
            parts.push_back(read_sequence(depth));
        } while (reader_.take("|"));
        return choice(std::move(parts));
    }

    Expression read_sequence(int depth) {
        std::vector<Expression> parts;
        for (;;) {
            skip(depth > 0);
            const char32_t next = reader_.peek();
            if (reader_.at_end() || next == '\n' || next == '|' || next == ')') return sequence(std::move(parts));
            parts.push_back(read_repeats(read_part(depth)));
        }
    }

    Expression read_part(int depth) {
        if (reader_.take("\"")) return read_literal();
        if (reader_.take("[")) return one_of(reader_.bracket([&](bool) { return escape(); }));
        if (reader_.take(".")) return one_of({{0, kMaxCharacter}});
        if (reader_.take("(")) {
            Expression inner = read_choice(depth + 1);
            if (!reader_.take(")")) reader_.refuse(") is missing");
            return inner;
        }
        return call(read_name());
    }

    Expression read_literal() {
        std::string bytes;
        while (!reader_.take("\"")) {
            const char32_t character = reader_.next();
            append_utf8(character == '\\' ? escape()[0].first : character, bytes);
        }
        return literal(bytes);
    }

    Characters escape() {
        const char32_t letter = reader_.next();
        const auto character = [&]() -> char32_t {
            switch (letter) {
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'x':
                return reader_.hexadecimal(2);
            case 'u':
                return reader_.hexadecimal(4);
            case 'U':
                return reader_.hexadecimal(8);
            default:
                break;
            }
            if (is_of_name(letter) && letter != '-' && letter != '_') reader_.refuse("an unknown escape");
            return letter;
        }();
        return {{character, character}};
    }

    Expression read_repeats(Expression part) {
        for (int n = 0; n <= kMaxNesting; ++n) {
            const auto repeats = reader_.take_repeats();
            if (!repeats) return part;
            part = repeat(std::move(part), repeats->first, repeats->second);
        }
        reader_.refuse("too many repeats of repeats");
    }

    CharacterReader reader_;
};

} // namespace

Rules parse_gbnf(std::string_view text) {
    return GbnfParser(text).parse();
}

} // namespace entrodraft::model::grammar
