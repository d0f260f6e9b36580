// Blocks of weights as GGUF files hold them: codes of a row's inputs, one block behind the other, with the scales of
// the groups within. Called by quantized.
#pragma once

#include "model/checkpoint/quantized.h"

#include <cstddef>
#include <cstdint>

namespace entrodraft::model {

struct BlockShape {
    int inputs = 0; // of a block; 0: the form has no blocks
    int bytes = 0;
    int group = 0; // inputs that share a scale
    int bits = 0;  // of a code in memory
    int run = 0;   // inputs whose codes lie in bytes one behind the other
    bool has_zeros = false;
    CodeValues values = CodeValues::none;
};
BlockShape block_shape(QuantizedForm form);

// Of a group of a block: an element is scale * (code - zero).
float block_scale(QuantizedForm form, const std::byte* block, int group);
float block_zero(QuantizedForm form, const std::byte* block, int group);
// As QuantizedMatrix::read_codes has them, of inputs [first, first + count) of the block.
void read_block(QuantizedForm form, const std::byte* block, int first, int count, std::uint8_t* out);

} // namespace entrodraft::model
