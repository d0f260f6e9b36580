// Failed CUDA and NCCL calls: see check.h.
#include "dist/rank/check.h"

#include <cuda_runtime.h>
#include <nccl.h>

namespace entrodraft::dist {

void check_cuda(int code, const char* call, std::source_location place) {
    const auto error = static_cast<cudaError_t>(code);
    if (error != cudaSuccess) fail(call, cudaGetErrorString(error), place);
}

void check_nccl(int code, const char* call, std::source_location place) {
    const auto result = static_cast<ncclResult_t>(code);
    // A call on a non-blocking communicator may still be under way: its caller polls.
    if (result != ncclSuccess && result != ncclInProgress)
        fail(call, std::string(ncclGetErrorString(result)) + " (NCCL_DEBUG=WARN says more)", place);
}

} // namespace entrodraft::dist
