// Sums and gathers device memory through the host, for trials and tests in which ranks share a GPU. (NCCL refuses such
// ranks.)
//
// An enqueued collective copies its data to the host, sums it in rank order (or gathers it) with the other ranks of the
// host, and copies it back. Graphs capture it as usual. It exists only in builds with ENTRODRAFT_CUDA.
#pragma once

#include "dist/comm/communicator.h"

#include <memory>

namespace entrodraft::dist {

// `host` must be able to sum on any thread (NodeComm), and serves nothing else meanwhile. Collectives that are not
// enqueued go to `host` itself. A collective that takes longer than `timeout_seconds` fails.
std::unique_ptr<Communicator> make_staged_comm(std::unique_ptr<Communicator> host, double timeout_seconds);

} // namespace entrodraft::dist
