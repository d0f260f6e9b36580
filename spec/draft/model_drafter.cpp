// A draft model, in passes that sequences share; of several, a cascade: the smallest drafts for the one above it, and
// so on up to the first, which drafts for the target.
#include "spec/draft/drafter_type.h"
#include "spec/draft/model_texts.h"

namespace entrodraft::spec {

namespace {

std::unique_ptr<Drafter> make_model_drafter(const DrafterParts& parts) {
    const auto source = [&](std::size_t level) {
        return std::make_unique<ModelTexts>(*parts.models.at(level), parts.n_slots, parts.limits.vocab_size,
                                            parts.device);
    };
    std::size_t level = parts.models.size() - 1;
    auto of_smallest = static_cast<const DraftSetting&>(parts);
    of_smallest.takes_turns = parts.takes_turns || level > 0;
    std::unique_ptr<Drafter> drafter = make_chain_drafter(source(level), of_smallest);
    for (; level > 0; --level)
        drafter = make_cascade_drafter({source(level - 1), std::move(drafter), parts.rules[level], parts.costs[level]},
                                       parts);
    return drafter;
}

} // namespace

DrafterType model_drafter() {
    return {.name = "model", .position = 10, .help = "--draft", .make = make_model_drafter};
}

} // namespace entrodraft::spec
