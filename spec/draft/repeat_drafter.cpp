// Drafts the text's last token again and again.
#include "spec/draft/chain.h"

#include <algorithm>

namespace entrodraft::spec {

DrafterType repeat_drafter() {
    const auto make = [](const DrafterParts& parts, const DrafterValues&) {
        const auto fill = [](std::span<const TokenId> text, std::span<float> row) {
            std::ranges::fill(row, 0.0F);
            row[static_cast<std::size_t>(text.back())] = 8;
        };
        return make_chain_drafter(make_function_source("repeat", parts.limits.vocab_size, fill), parts);
    };
    return {.name = "repeat", .position = 61, .help = "the last token, repeated", .make_of = make};
}

} // namespace entrodraft::spec
