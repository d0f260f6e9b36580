// The parts of every grammar, whichever notation it comes from (gbnf.cpp, regex.cpp, json_schema.cpp): expressions over
// characters, and named rules. automaton.h compiles them.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace entrodraft::model::grammar {

// Says what is wrong with a grammar, in words for its author.
class BadGrammar final : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

struct CharacterRange {
    char32_t first = 0;
    char32_t last = 0;
};
using Characters = std::vector<CharacterRange>;

inline constexpr char32_t kMaxCharacter = 0x10FFFF;
// Returns all other characters. Surrogates are left out: they are not characters.
Characters negated(Characters characters);
// Returns the characters that are in both sets.
Characters intersection(const Characters& characters, const Characters& others);

struct Expression {
    enum class Kind { literal, characters, sequence, choice, repeat, rule };
    static constexpr int kUnbounded = -1;
    Kind kind = Kind::sequence;
    std::string text;              // bytes of a literal, or name of a rule
    Characters characters;         // one of these; an empty list matches nothing
    std::vector<Expression> parts; // of a sequence or a choice; a repeat has one
    int least = 1, most = 1;       // of a repeat
};

Expression literal(std::string bytes);
Expression one_of(Characters characters);
Expression sequence(std::vector<Expression> parts);
Expression choice(std::vector<Expression> parts);
Expression repeat(Expression part, int least, int most);
Expression optional(Expression part);
Expression call(std::string rule);

struct Rules {
    std::map<std::string, Expression> by_name;
    std::string root = "root";
};

// The parsers. Nesting is limited here, and the callers limit the text. All throw BadGrammar.
Rules parse_gbnf(std::string_view text);
Rules parse_regex(std::string_view text);
Rules parse_json_schema(std::string_view text);
// Returns an expression for strings in which ECMA-262's `pattern` finds a match, as in JSON, without the quotes.
Expression json_string_with(std::string_view pattern);

inline constexpr int kMaxNesting = 100; // of brackets, and of schemas
inline constexpr int kMaxRepeats = 100000;

} // namespace entrodraft::model::grammar
