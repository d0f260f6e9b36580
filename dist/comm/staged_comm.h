// Sums and gathers of device memory through the host, for ranks that share a GPU, which NCCL refuses: to try and to
// test with.
//
// What a stream is asked for it copies to the host, sums there in rank order (or gathers) with the other ranks of the
// host, and copies back; captured into graphs like everything else. Only in builds with ENTRODRAFT_CUDA.
#pragma once

#include "dist/comm/communicator.h"

#include <memory>

namespace entrodraft::dist {

// Over `host`, which must be able to sum on whatever thread asks it and serves nothing else meanwhile (NodeComm); other
// collectives than enqueued ones are `host`'s own. One that takes longer fails.
std::unique_ptr<Communicator> make_staged_comm(std::unique_ptr<Communicator> host, double timeout_seconds);

} // namespace entrodraft::dist
