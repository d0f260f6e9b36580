// A language (its first byte) and a grammar, regular expression or JSON schema, and a text that it allows, chosen by
// the grammar's own bytes. Masks must be those of the bytes' recognizer.
#include "tests/fuzz/fuzz_input.h"

#include "model/text/grammar/token_grammar.h"

#include <memory>
#include <string>
#include <vector>

using namespace entrodraft::model::grammar;

namespace fuzz = entrodraft::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    static const auto vocabulary = [] {
        std::vector<std::string> tokens = {""}; // the end
        for (int byte = 0; byte < 256; ++byte)
            tokens.emplace_back(1, static_cast<char>(byte));
        for (const char* more : {"{\"", "\": ", ", \"", "ab", "aaa", "[[", "12", "\xC3\xA9"})
            tokens.emplace_back(more);
        return std::make_shared<Vocabulary>(std::move(tokens), std::vector<entrodraft::model::TokenId>{0});
    }();
    const auto language = static_cast<Language>(1 + data[0] % 3);
    try {
        const auto automaton = compile({language, std::string(fuzz::text_of(data + 1, size - 1))});
        TokenMatcher text(std::make_shared<TokenGrammar>(automaton, vocabulary));
        Recognizer recognizer(*automaton);
        StateId state = recognizer.start();
        for (std::size_t step = 0; step < 24; ++step) {
            const TokenMask& mask = text.mask();
            fuzz::require(mask.allows(0) == recognizer.accepts(state) || mask.count() == 0);
            entrodraft::model::TokenId chosen = 0;
            const auto n = static_cast<entrodraft::model::TokenId>(vocabulary->size());
            for (entrodraft::model::TokenId i = 1; i < n && chosen == 0; ++i)
                if (const auto token = static_cast<entrodraft::model::TokenId>((i + data[step % size]) % n);
                    token > 0 && mask.allows(token))
                    chosen = token;
            if (chosen == 0) break;
            for (const char byte : vocabulary->bytes(chosen))
                state = recognizer.next(state, static_cast<std::uint8_t>(byte));
            fuzz::require(state != Recognizer::kDead);
            text.push(chosen);
            if (step % 5 == 4) {
                text.pop();
                fuzz::require(text.mask().allows(chosen));
                text.push(chosen);
            }
        }
    } catch (const BadGrammar& error) {
        fuzz::require(*error.what() != '\0');
    }
    return 0;
}
