// Expressions, and arithmetic on sets of characters: see expression.h.
#include "model/text/grammar/expression.h"

#include <algorithm>

namespace entrodraft::model::grammar {

Characters negated(Characters characters) {
    characters.push_back({0xD800, 0xDFFF});
    std::ranges::sort(characters, {}, &CharacterRange::first);
    Characters others;
    char32_t next = 0;
    for (const CharacterRange& range : characters) {
        if (range.first > next) others.push_back({next, range.first - 1});
        next = std::max(next, char32_t{range.last + 1});
    }
    if (next <= kMaxCharacter) others.push_back({next, kMaxCharacter});
    return others;
}

Characters intersection(const Characters& characters, const Characters& others) {
    Characters both = negated(characters);
    const Characters not_others = negated(others);
    both.insert(both.end(), not_others.begin(), not_others.end());
    return negated(std::move(both));
}

Expression literal(std::string bytes) {
    Expression made;
    made.kind = Expression::Kind::literal;
    made.text = std::move(bytes);
    return made;
}

Expression one_of(Characters characters) {
    Expression made;
    made.kind = Expression::Kind::characters;
    made.characters = std::move(characters);
    return made;
}

Expression sequence(std::vector<Expression> parts) {
    if (parts.size() == 1) return std::move(parts.front());
    Expression made;
    made.parts = std::move(parts);
    return made;
}

Expression choice(std::vector<Expression> parts) {
    if (parts.size() == 1) return std::move(parts.front());
    Expression made;
    made.kind = Expression::Kind::choice;
    made.parts = std::move(parts);
    return made;
}

Expression repeat(Expression part, int least, int most) {
    Expression made;
    made.kind = Expression::Kind::repeat;
    made.parts.push_back(std::move(part));
    made.least = least;
    made.most = most;
    return made;
}

Expression optional(Expression part) {
    return repeat(std::move(part), 0, 1);
}

Expression call(std::string rule) {
    Expression made;
    made.kind = Expression::Kind::rule;
    made.text = std::move(rule);
    return made;
}

} // namespace entrodraft::model::grammar
