// Grids of ggml's IQ types. An index in a block stands for a point of a grid. A point is 16 bits: eight indices of 2
// bits, or (IQ3) four indices of 4 bits, the first in the lowest bits. They are indices into the type's list of values.
// Called by gguf_blocks.
#pragma once

#include <cstdint>

namespace entrodraft::model {

extern const std::uint16_t kGridIq1[2048], kGridIq2Xxs[256], kGridIq2Xs[512], kGridIq2S[1024];
extern const std::uint16_t kGridIq3Xxs[256], kGridIq3S[512];

} // namespace entrodraft::model
