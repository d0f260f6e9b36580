// The texts that a draft head follows, one a slot: the target's hidden states of their tokens, what the head has read
// of these, and the head's own states behind the tokens that it drafts.
//
// The head's row of position p has the token at p + 1. Its cache keeps rows made of the target's states alone; those of
// drafted tokens, made of its own, go when the round has ended. What heads there are: model/heads/head.h.
#pragma once

#include "model/heads/head.h"
#include "spec/draft/tree.h"

#include <memory>
#include <span>
#include <vector>

namespace entrodraft::spec {

// A head with its modules loaded: what `head` drafts with. All outlive the drafter.
struct HeadModules {
    const model::DraftHead* head = nullptr;
    std::vector<model::Decoder*> modules; // as head->modules
};

// Tokens of a text, drafted ones among them, that a head may read, of whose first `known` the target's states are known
// (LogitSource::context_of). `max_tokens` as in DraftHead; `context`: positions.
std::size_t head_context(std::size_t known, int max_tokens, std::size_t context);

// Slots [0, n_slots); `vocab` is how many tokens of the target's count. Texts of one token have no hidden states yet:
// nothing is drafted behind them. `device`: of the GPU that the modules are on. It drafts on by itself (see
// SourceFacts::device) where a head's one module makes every token of a chain or tree of its own state of the one
// before: not where one pass gives several tokens anyway (masked rows, blocks) or each depth has a module, and so a
// pass, of its own (Medusa, Hydra, MLP speculators).
std::unique_ptr<TreeSource> make_head_source(const HeadModules& head, int vocab, int n_slots,
                                             DeviceVerifier* device = nullptr);

} // namespace entrodraft::spec
