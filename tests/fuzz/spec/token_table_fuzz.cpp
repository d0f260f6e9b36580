// A table of counts for the drafters bigram and unigram.
#include "tests/fuzz/fuzz_input.h"

#include "spec/draft/token_table.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const spec::TokenTable table(spec::parse_token_counts(std::as_bytes(std::span(data, size)), "the table"));
        std::vector<float> logits(static_cast<std::size_t>(table.vocab_size()));
        if (logits.size() > 4096) return 0;
        for (const int order : {1, 2})
            for (spec::TokenId token = 0; token < std::min(table.vocab_size(), 4); ++token)
                table.row(order, token, logits);
    } catch (const std::runtime_error&) { // its contract
    }
    return 0;
}
