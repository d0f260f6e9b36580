// The texts that a draft head follows, one in each slot. This has the target's hidden states of their tokens, the part
// of these that the head has read, and the head's own states after the tokens that it drafts.
//
// The head's row of position p has the token at p + 1. Its cache keeps only rows made of the target's states. Rows of
// drafted tokens, made of its own states, leave it when the round has ended. All kinds of heads: model/heads/head.h.
#pragma once

#include "model/heads/head.h"
#include "spec/draft/tree.h"

#include <memory>
#include <vector>

namespace entrodraft::spec {

// A head with its modules loaded, for the drafter `head`. All must outlive the drafter.
struct HeadModules {
    const model::DraftHead* head = nullptr;
    std::vector<model::Decoder*> modules; // as head->modules
};

// The number of tokens of a text and its draft that a head may read, if the target's states of the first `known` are
// known (LogitSource::context_of). `max_tokens`: as in DraftHead. `context`: positions.
std::size_t head_context(std::size_t known, int max_tokens, std::size_t context);

// Has slots [0, n_slots). The first `vocab` tokens of the target count. A text of one token has no hidden states yet,
// so nothing is drafted after it. `device`: of the modules' GPU. It drafts on by itself (see SourceFacts::device) if
// the head's one module makes every token, of a chain or tree, of its own state of the one before. It does not if one
// pass gives several tokens anyway (masked rows, blocks), or if each depth has its own module and pass (Medusa, Hydra,
// MLP speculators).
std::unique_ptr<TreeSource> make_head_source(const HeadModules& head, int vocab, int n_slots,
                                             DeviceVerifier* device = nullptr);

} // namespace entrodraft::spec
