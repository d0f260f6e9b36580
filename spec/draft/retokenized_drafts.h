// A draft model of another vocabulary than the target's, which writes text in its own tokens: what it has written is
// drafted as the target's tokenizer writes it.
//
// Source: Timor et al. 2025, string-level exact match (arXiv 2502.05202). Called by the drafter `model`.
#pragma once

#include "spec/draft/chain.h"

#include <memory>

namespace entrodraft::spec {

// `source` reads the draft's tokens and gives rows of all of them. Sequences take turns. Drafts are chains of the
// draft's first choices (under `gumbel` with the noise that the target will add to tokens that both know) and have no
// distribution, so that verification accepts what is the target's own.
std::unique_ptr<Drafter> make_retokenizing_drafter(std::unique_ptr<LogitSource> source,
                                                   const OtherVocabulary& vocabulary, const DraftSetting& setting);

} // namespace entrodraft::spec
