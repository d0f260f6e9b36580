// Drafts with a model whose vocabulary is not the target's. The model writes text in its own tokens, and the target's
// tokenizer turns this text into the draft.
//
// Source: Timor et al. 2025, string-level exact match (arXiv 2502.05202). Called by the drafter `model`.
#pragma once

#include "spec/draft/chain.h"

#include <memory>

namespace entrodraft::spec {

// `source` reads the draft's tokens and gives rows of all of them. Sequences take turns. Drafts are chains of the
// draft's first choices (under `gumbel` with the noise that the target will add to tokens that both know). They have no
// distribution, so verification accepts the target's own tokens.
std::unique_ptr<Drafter> make_retokenizing_drafter(std::unique_ptr<LogitSource> source,
                                                   const OtherVocabulary& vocabulary, const DraftSetting& setting);

} // namespace entrodraft::spec
