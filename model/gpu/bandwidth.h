// Measures the speed at which this GPU reads its memory: the benches' yardstick, as cpu/roofline.h is for CPUs.
#pragma once

#include <cstddef>

namespace entrodraft::model::gpu {

// Bytes a second at which the current device reads an array of `bytes` bytes, launch after launch: the median of
// several runs. Throws dist::Error.
double read_rate(std::size_t bytes);

} // namespace entrodraft::model::gpu
