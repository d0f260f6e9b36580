// See character_reader.h.
#include "model/text/grammar/character_reader.h"

#include "model/files/utf8.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::model::grammar {

bool CharacterReader::take(std::string_view what) {
    if (!sees(what)) return false;
    at_ += what.size();
    return true;
}

char32_t CharacterReader::peek() const {
    return at_end() ? 0 : code_point_at(text_, at_).value;
}

char32_t CharacterReader::next() {
    if (at_end()) refuse("it ends too early");
    const CodePoint found = code_point_at(text_, at_);
    at_ += found.n_bytes;
    return found.value;
}

void CharacterReader::refuse(const std::string& why) const {
    const std::string_view before = text_.substr(0, at_);
    const std::size_t begin = before.rfind('\n') + 1; // npos + 1 is 0
    throw BadGrammar(fmt::format("line {}, byte {}: {}", std::ranges::count(before, '\n') + 1, at_ - begin + 1, why));
}

char32_t CharacterReader::hexadecimal(int n_digits) {
    char32_t value = 0;
    for (int i = 0; i < n_digits; ++i) {
        const char32_t digit = next();
        const bool is_letter = (digit >= 'a' && digit <= 'f') || (digit >= 'A' && digit <= 'F');
        if (!is_letter && (digit < '0' || digit > '9'))
            refuse(fmt::format("{} hexadecimal digits must follow", n_digits));
        value = value * 16 + (is_letter ? (digit | 0x20U) - 'a' + 10 : digit - '0');
    }
    if (value > kMaxCharacter || (value >= 0xD800 && value <= 0xDFFF)) refuse("that is no character");
    return value;
}

std::optional<std::pair<int, int>> CharacterReader::take_repeats() {
    if (take("*")) return {{0, Expression::kUnbounded}};
    if (take("+")) return {{1, Expression::kUnbounded}};
    if (take("?")) return {{0, 1}};
    if (take("{")) return counted_repeats();
    return std::nullopt;
}

std::pair<int, int> CharacterReader::counted_repeats() {
    const auto number = [&] {
        int value = 0;
        if (peek() < '0' || peek() > '9') refuse("a number of repeats must follow");
        while (peek() >= '0' && peek() <= '9') {
            value = value * 10 + static_cast<int>(next() - '0');
            if (value > kMaxRepeats) refuse(fmt::format("more than {} repeats", kMaxRepeats));
        }
        return value;
    };
    const int least = number();
    int most = least;
    if (take(",")) most = sees("}") ? Expression::kUnbounded : number();
    if (!take("}")) refuse("} must follow a number of repeats");
    if (most != Expression::kUnbounded && most < least) refuse("the second number of repeats is less than the first");
    return {least, most};
}

} // namespace entrodraft::model::grammar
