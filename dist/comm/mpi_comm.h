// Collectives through MPI, for groups that span hosts: non-blocking calls, polled until a deadline.
//
// Sums are in rank order like NodeComm's, bit for bit. Made by Session.
#pragma once

#include "dist/comm/communicator.h"
#include "dist/rank/rank_board.h"

#include <memory>
#include <vector>

namespace entrodraft::dist {

// `mpi_comm` points to an MPI_Comm (no mpi.h here) that returns errors, is used by nothing else and outlives the
// result, as does `board` (null: nothing is known of ranks that do not come). `world_ranks`: its members in rank order,
// for messages.
std::unique_ptr<Communicator> make_mpi_comm(const void* mpi_comm, std::vector<int> world_ranks, RankBoard* board);

} // namespace entrodraft::dist
