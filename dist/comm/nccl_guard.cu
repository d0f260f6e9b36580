// See nccl_guard.h.
#include "dist/comm/nccl_guard.h"

#include "dist/rank/kernel_launch.cuh"

namespace entrodraft::dist {

namespace {

__global__ void wait_for_all_before() {
    wait_for_inputs(); // the only kernel that does not let the next one start
}

} // namespace

void end_all_before(void* stream) {
    if (overlaps_kernels(wait_for_all_before)) launch(stream, {1, 32}, wait_for_all_before);
}

} // namespace entrodraft::dist
