// Some NCCL versions need this guard before each call that follows a kernel of ours. Only nccl_comm.cpp uses it.
//
// NCCL's kernels over windows may begin while the kernel before them still runs, as ours may (kernel_launch.cuh). From
// version 2.28 to before 2.30.7, NCCL's kernels do not wait for the end of that kernel: NCCL had left out the wait, and
// its commit 2948185d restores it. So they may read data that is not yet written.
#pragma once

namespace entrodraft::dist {

// `nccl_version` is as ncclGetVersion() gives it: 10,000 times the major, 100 times the minor, plus the patch.
constexpr bool begins_too_early(int nccl_version) {
    return nccl_version >= 22800 && nccl_version < 23007;
}

// Puts a kernel on the stream, a cudaStream_t that may be under capture. The kernel waits for all earlier work, and
// later work begins only after its end. Does nothing where kernels do not overlap. Throws Error.
void end_all_before(void* stream);

} // namespace entrodraft::dist
