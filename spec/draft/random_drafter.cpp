// Drafts meaningless tokens, for tests of everything that must be true for any draft.
#include "spec/draft/chain.h"
#include "spec/verify/random.h"

#include <algorithm>

namespace entrodraft::spec {

namespace {

void fill_random_row(std::span<const TokenId> text, std::span<float> row) {
    const std::size_t position = text.size();
    const float sharpness = static_cast<float>(position % 5) * 4.0F; // from flat to nearly certain
    for (std::size_t first = 0; first < row.size(); first += 4) {
        const auto words = philox4x32({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(position),
                                       static_cast<std::uint32_t>(text.back()), 0},
                                      {0, 0});
        for (std::size_t i = first; i < std::min(first + 4, row.size()); ++i)
            row[i] = sharpness * static_cast<float>(words[i - first]) * 0x1p-32F;
    }
}

} // namespace

std::unique_ptr<LogitSource> make_random_source(int vocab) {
    return make_function_source("random", vocab, fill_random_row);
}

DrafterType random_drafter() {
    return {.name = "random", .position = 60, .make_of = [](const DrafterParts& parts, const DrafterValues&) {
                return make_chain_drafter(make_random_source(parts.limits.vocab_size), parts);
            }};
}

} // namespace entrodraft::spec
