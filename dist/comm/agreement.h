// Brings all ranks to an agreement before the first round: all learn of the first failure, and leave together.
#pragma once

#include "dist/comm/communicator.h"

#include <cstdint>
#include <string>

namespace entrodraft::dist {

// The result of one rank's phase. An empty message means that the phase went well.
struct Status {
    std::string message;
    int exit_code = 0;
    std::string place = ""; // the rank in "[place] message", as "rank 2, host n1, load"; empty: "rank 2"

    bool ok() const { return exit_code == 0; }
};

// Returns the status of the lowest failing rank, the same on every rank; ok when no rank failed. The message is
// "[place] message" unless the failure is common to all ranks. Messages are cut at 1,000 bytes. Collective over `comm`.
Status agree(Communicator& comm, const Status& mine, Deadline deadline);

// Compares a 64-bit checksum of something that every rank must hold alike. The returned status names `what` and the
// lowest rank that differs from rank 0. Collective over `comm`.
Status same_on_all_ranks(Communicator& comm, std::uint64_t checksum, const std::string& what, Deadline deadline);

} // namespace entrodraft::dist
