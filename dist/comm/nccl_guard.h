// A guard that NCCL of some versions needs before each of its calls behind a kernel of ours. For nccl_comm.cpp alone.
//
// NCCL's kernels over windows are launched so that they may begin while the kernel before still runs, as ours are
// (kernel_launch.cuh). From 2.28 to before 2.30.7 they do not wait for its end: the wait was left out (NCCL's commit
// 2948185d has it back), so they may read what is not yet written.
#pragma once

namespace entrodraft::dist {

// The version as ncclGetVersion() has it: 10,000 times the major, 100 times the minor, the patch.
constexpr bool begins_too_early(int nccl_version) {
    return nccl_version >= 22800 && nccl_version < 23007;
}

// Puts a kernel on the stream, a cudaStream_t, which may be under capture: it waits and lets nothing begin before its
// end. So what follows begins when all before has ended. Nothing where kernels do not overlap. Throws Error.
void end_all_before(void* stream);

} // namespace entrodraft::dist
