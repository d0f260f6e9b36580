// Makes random texts of regular expressions, for regex_texts.py; not a test by itself, not installed. Lines of JSON in:
// {"language": "regex" or "json_schema", "source", "seed", "texts": how many}; out: {"texts"} or {"error"}.
#include "model/files/utf8.h"
#include "model/text/grammar/token_grammar.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>

using namespace entrodraft::model;
using namespace entrodraft::model::grammar;
using Json = nlohmann::ordered_json;

namespace {

// Characters at which Python and ECMA-262 differ, and neighbours of classes.
constexpr char32_t kOdd[] = {0x00,   0x09,   0x0a,   0x0b,   0x0d,    0x1c,    0x1f,   0x20,   0x2d,   0x30,
                             0x39,   0x3a,   0x41,   0x5f,   0x61,    0x7f,    0x85,   0xa0,   0xaa,   0xb2,
                             0xe9,   0x130,  0x17f,  0x300,  0x378,   0x660,   0x6f2,  0x1680, 0x180e, 0x1d7cf,
                             0x2007, 0x200b, 0x2028, 0x2029, 0x2160,  0x212a,  0x3000, 0x4e00, 0xd7ff, 0xe000,
                             0xfb01, 0xfeff, 0xff11, 0xfffd, 0x1f600, 0x10ffff};
constexpr std::size_t kMaxBytes = 60;

class Walk {
  public:
    Walk(const Automaton& automaton, std::uint64_t seed) : recognizer_(automaton), random_(seed) {}

    // A text that may end where it does; nothing where the walk grows too long.
    std::optional<std::string> text() {
        std::string text;
        StateId state = recognizer_.start();
        while (text.size() < kMaxBytes) {
            if (recognizer_.accepts(state) && random_() % 4 == 0) return text;
            if (random_() % 2 == 0 && add_odd(text, state)) continue;
            if (add_byte(text, state)) continue;
            return recognizer_.accepts(state) ? std::optional(text) : std::nullopt;
        }
        return recognizer_.accepts(state) ? std::optional(text) : std::nullopt;
    }

  private:
    bool add_odd(std::string& text, StateId& state) {
        std::string bytes;
        append_utf8(kOdd[random_() % std::size(kOdd)], bytes);
        StateId next = state;
        for (const char byte : bytes)
            next = recognizer_.next(next, static_cast<std::uint8_t>(byte));
        if (next == Recognizer::kDead) return false;
        text += bytes;
        state = next;
        return true;
    }

    bool add_byte(std::string& text, StateId& state) {
        std::string legal;
        for (int byte = 0; byte < 256; ++byte)
            if (recognizer_.next(state, static_cast<std::uint8_t>(byte)) != Recognizer::kDead)
                legal += static_cast<char>(byte);
        if (legal.empty()) return false;
        text += legal[random_() % legal.size()];
        state = recognizer_.next(state, static_cast<std::uint8_t>(text.back()));
        return true;
    }

    Recognizer recognizer_;
    std::mt19937_64 random_;
};

Json texts_of(const Json& asked) {
    const bool is_regex = asked["language"] == "regex";
    const auto automaton = compile({is_regex ? Language::regex : Language::json_schema, asked["source"]});
    Walk walk(*automaton, asked["seed"]);
    Json texts = Json::array();
    for (int i = asked["texts"]; i > 0; --i)
        if (auto text = walk.text()) texts.push_back(*std::move(text));
    return texts;
}

} // namespace

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        Json answer;
        try {
            answer["texts"] = texts_of(Json::parse(line));
        } catch (const BadGrammar& error) {
            answer["error"] = error.what();
        }
        std::cout << answer.dump(-1, ' ', true) << '\n';
    }
}
