// What a tokenizer must hold to, whatever file it came from and whatever text it reads.
#pragma once

#include "tests/fuzz/fuzz_input.h"

#include "model/text/tokenizer/tokenizer.h"

#include <span>
#include <stdexcept>
#include <string>

namespace entrodraft::fuzz {

inline void check_ids(const model::Tokenizer& tokenizer, std::span<const model::TokenId> ids) {
    for (const bool skip : {false, true}) {
        model::StreamDecoder stream(tokenizer, skip);
        std::string streamed;
        for (const model::TokenId id : ids)
            streamed += stream.push(id);
        streamed += stream.finish();
        require(streamed == tokenizer.decode(ids, skip));
    }
}

inline void check_text(const model::Tokenizer& tokenizer, std::string_view text) {
    for (const bool special : {false, true}) {
        try {
            const std::vector<model::TokenId> ids = tokenizer.encode(text, special);
            for (const model::TokenId id : ids)
                require(id >= 0 && id < tokenizer.size());
            check_ids(tokenizer, ids);
        } catch (const std::invalid_argument&) { // not UTF-8
        } catch (const std::runtime_error&) {    // no token for a character
        }
    }
}

} // namespace entrodraft::fuzz
