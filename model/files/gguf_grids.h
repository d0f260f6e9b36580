// Grids of ggml's IQ types: an index in a block stands for a point, which has eight values, or four. A point has 16
// bits. They are indices into the type's list of values, the first lowest, of 2 bits each, or of 4 (IQ3). Called by
// gguf_blocks.
#pragma once

#include <cstdint>

namespace entrodraft::model {

extern const std::uint16_t kGridIq1[2048], kGridIq2Xxs[256], kGridIq2Xs[512], kGridIq2S[1024];
extern const std::uint16_t kGridIq3Xxs[256], kGridIq3S[512];

} // namespace entrodraft::model
