// Collectives among GPUs through NCCL. Buffers are in device memory, and the host watches the deadlines.
//
// If all ranks can access each other's memory, a kernel of ours does small all-gathers (push.h). NcclComm exists only
// in builds with ENTRODRAFT_CUDA, and in tests that replace CUDA and NCCL by stand-ins. It is made once the layout is
// known, with one GPU per rank, and destroyed before Session::leave.
#pragma once

#include "dist/comm/communicator.h"

#include <memory>
#include <string>

namespace entrodraft::dist {

struct NcclOptions {
    int device = 0;              // of this rank, in CUDA's numbering
    void* work_stream = nullptr; // cudaStream_t whose earlier work a collective waits for; null: the default stream
    double close_seconds = 2;    // how long the destructor waits for the others before it aborts, and abort() for NCCL
    double enqueue_seconds = 60; // how long the others may take to set up an enqueued sum
    double gather_seconds = kDefaultTimeoutSeconds; // how long the kernel of a small all-gather waits for the others
};

// Connects the ranks of `host` with their devices. NCCL chooses the order of a sum: every rank gets the same bits, but
// with more than two ranks the order depends on count, place and machine. Throws the same Error on every rank when one
// of them cannot start. Collective over `host`, which is used only in this call.
std::unique_ptr<Communicator> make_nccl_comm(Communicator& host, const NcclOptions& options, Deadline deadline);

// Returns true where NCCL allows several ranks on one GPU: from 2.30 on, if NCCL_MULTI_RANK_GPU_ENABLE is 1. The ranks
// then take turns on the GPU, so this is for tests only. Throws Error.
bool nccl_shares_gpus();

// Describes the loaded NCCL in words: version, file, settings of ours. Throws Error.
std::string describe_nccl();

} // namespace entrodraft::dist
