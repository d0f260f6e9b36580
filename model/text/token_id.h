// The id of a token: its index in the vocabulary, from 0. Passes, tokenizers and packets share it.
#pragma once

#include <cstdint>

namespace entrodraft::model {

using TokenId = std::int32_t;

} // namespace entrodraft::model
