// Sorts the suffixes of a text of token ids: makes its suffix array (Manber and Myers 1990). It uses induced sorting
// (SA-IS: Nong, Zhang and Chan 2009). Time and memory are linear in the text, however much the text repeats itself.
//
// Knows nothing of files and drafting. Called by lookup_corpus.cpp.
#pragma once

#include "spec/verify/token_id.h"

#include <cstdint>
#include <span>
#include <vector>

namespace entrodraft::spec {

// The positions of `tokens`, ordered by the text that begins there; a text that ends comes before one that goes on.
// Tokens are 0 to `largest`; there may be 2^31 - 2 tokens. Besides the result it takes about 10 bytes a token while it
// works, and 8 bytes for each kind of token.
std::vector<std::uint32_t> suffix_array(std::span<const TokenId> tokens, TokenId largest);

} // namespace entrodraft::spec
