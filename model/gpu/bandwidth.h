// Measures how fast this GPU reads its memory. The benches compare with this, as they compare with cpu/roofline.h on
// CPUs.
#pragma once

#include <cstddef>

namespace entrodraft::model::gpu {

// Bytes a second at which the current device reads an array of `bytes` bytes, launch after launch: the median of
// several runs. Throws dist::Error.
double read_rate(std::size_t bytes);

} // namespace entrodraft::model::gpu
