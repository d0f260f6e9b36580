// A draft model of another vocabulary than the target's, as one of the target's: texts go in as the draft's tokens, and
// of its rows come the logits of the tokens that both know; the others have probability 0.
//
// Source: Timor et al. 2025, token-level intersection (arXiv 2502.05202). Called by the drafter `model`.
#pragma once

#include "spec/draft/tree.h"

#include <memory>

namespace entrodraft::spec {

// `source` reads the draft's tokens and gives rows of all of them; rows here have the first `vocab` of the target's.
// Texts are asked about at their last token alone. A row in which no token has a probability is all -inf, as is that of
// a text that the draft cannot read. The map outlives this.
std::unique_ptr<TreeSource> make_translated_source(std::unique_ptr<TreeSource> source,
                                                   const OtherVocabulary& vocabulary, int vocab, int n_slots);

} // namespace entrodraft::spec
