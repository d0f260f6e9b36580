// Drafts with a draft head, which reads the target's hidden states (head_texts.h). The drafts are chains or trees, and
// sequences share passes.
#include "spec/draft/head_texts.h"

namespace entrodraft::spec {

namespace {

std::unique_ptr<Drafter> make_head_drafter(const DrafterParts& parts, const DrafterValues& /*values*/) {
    auto source = make_head_source(*parts.head, parts.limits.vocab_size, parts.n_slots, parts.device);
    if (parts.tree) return make_tree_drafter(std::move(source), *parts.tree, parts);
    return make_chain_drafter(std::move(source), parts);
}

} // namespace

DrafterType head_drafter() {
    return {.name = "head", .position = 11, .help = "--head", .make_of = make_head_drafter};
}

} // namespace entrodraft::spec
