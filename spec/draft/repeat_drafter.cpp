// The last token once more: what a stutter would say.
#include "spec/draft/chain.h"

#include <algorithm>

namespace entrodraft::spec {

DrafterType repeat_drafter() {
    return {.name = "repeat", .position = 70, .help = "the last token again", .make = [](const DrafterParts& parts) {
                return make_chain_drafter(make_function_source("repeat", parts.limits.vocab_size,
                                                               [](std::span<const TokenId> text, std::span<float> row) {
                                                                   std::ranges::fill(row, 0.0F);
                                                                   row[static_cast<std::size_t>(text.back())] = 20;
                                                               }),
                                          parts);
            }};
}

} // namespace entrodraft::spec
