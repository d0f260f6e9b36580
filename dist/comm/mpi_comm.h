// Collectives through MPI, for groups that span hosts. Calls are non-blocking, and are polled until a deadline.
//
// Sums are in rank order and have the same bits as NodeComm's. Session makes it.
#pragma once

#include "dist/comm/communicator.h"
#include "dist/rank/rank_board.h"

#include <memory>
#include <vector>

namespace entrodraft::dist {

// `mpi_comm` points to an MPI_Comm (mpi.h is not included here) that returns errors and that nothing else uses. It and
// `board` outlive the result. With a null `board` nothing is known of ranks that do not come. `world_ranks`: the
// members' world ranks in rank order, for messages.
std::unique_ptr<Communicator> make_mpi_comm(const void* mpi_comm, std::vector<int> world_ranks, RankBoard* board);

} // namespace entrodraft::dist
