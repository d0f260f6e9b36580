// Makes a draft model with another vocabulary look like one with the target's vocabulary. It gives the draft a text in
// the draft's tokens. Its rows have the logits of the tokens that both models know; the other tokens have probability
// 0.
//
// Source: Timor et al. 2025, token-level intersection (arXiv 2502.05202). Called by the drafter `model`.
#pragma once

#include "spec/draft/tree.h"

#include <memory>

namespace entrodraft::spec {

// `source` reads the draft's tokens and gives rows of all of them. Rows here have the first `vocab` tokens of the
// target. Texts are asked about at their last token alone. A row is all -inf if no token has a probability, or if the
// draft cannot read the text. The map must outlive this.
std::unique_ptr<TreeSource> make_translated_source(std::unique_ptr<TreeSource> source,
                                                   const OtherVocabulary& vocabulary, int vocab, int n_slots);

} // namespace entrodraft::spec
