// Collectives among GPUs through NCCL: buffers in device memory, deadlines on the host.
//
// Where all ranks reach each other's memory, small all-gathers are done by a kernel of ours (push.h). Only in builds
// with ENTRODRAFT_CUDA, and in tests over stand-ins for CUDA and NCCL. Made once the layout is known, one GPU a rank;
// destroyed before Session::leave.
#pragma once

#include "dist/comm/communicator.h"

#include <memory>
#include <string>

namespace entrodraft::dist {

struct NcclOptions {
    int device = 0;              // of this rank, as CUDA counts them
    void* work_stream = nullptr; // cudaStream_t whose earlier work a collective waits for; null: the default stream
    double close_seconds = 2;    // how long the destructor waits for the others before it aborts, and abort() for NCCL
    double enqueue_seconds = 60; // how long the others may take to set up what an enqueued sum needs
    double gather_seconds = kDefaultTimeoutSeconds; // how long the kernel of a small all-gather waits for the others
};

// The ranks of `host` with their devices. The sum's order is NCCL's: the same bits on every rank; beyond two ranks it
// depends on count, place and machine. Throws the same Error on every rank when one of them cannot start. Collective
// over `host`, which is used only here.
std::unique_ptr<Communicator> make_nccl_comm(Communicator& host, const NcclOptions& options, Deadline deadline);

// True where NCCL takes several ranks of one GPU: from 2.30 on, if its own NCCL_MULTI_RANK_GPU_ENABLE is 1. They take
// turns there, so for tests alone. Throws Error.
bool nccl_shares_gpus();

// The NCCL that this process has loaded, in words: version, file, settings of ours. Throws Error.
std::string describe_nccl();

} // namespace entrodraft::dist
