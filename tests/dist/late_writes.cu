// See late_writes.h.
#include "tests/dist/late_writes.h"

#include "dist/rank/kernel_launch.cuh"

namespace {

using namespace entrodraft::dist;

__device__ unsigned long long clock_ns() {
    unsigned long long now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void write_late(float* to, std::size_t n, const float* value, unsigned long long wait_ns) {
    begin_kernel();
    for (const unsigned long long began = clock_ns(); clock_ns() - began < wait_ns;) {
    }
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        to[i] = *value;
}

} // namespace

void test::enqueue_late_writes(void* stream, float* to, std::size_t n, const float* value) {
    constexpr unsigned long long kWaitNs = 200000;
    launch(stream, {16, 256}, write_late, to, n, value, kWaitNs);
}
