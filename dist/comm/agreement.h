// Agreement before the first round: all ranks learn of the first failure and leave together.
#pragma once

#include "dist/comm/communicator.h"

#include <cstdint>
#include <optional>
#include <string>

namespace entrodraft::dist {

// How one rank's phase ended. An empty message means that it went well.
struct Status {
    std::string message;
    int exit_code = 0;
    std::string place = ""; // of the rank, as in "[place] message": "rank 2, host n1, load"; empty: the rank alone

    bool ok() const { return exit_code == 0; }
};

// The status of the lowest failing rank, as "[place] message" when more than one rank takes part and the
// failure is not common to all ranks; ok when all went well. The same on every rank. Messages are cut at
// 1,000 bytes. Collective over `comm`.
Status agree(Communicator& comm, const Status& mine, Deadline deadline);

// Compares a 64-bit checksum of something every rank must hold alike; the returned status names `what`
// and the lowest rank that differs from rank 0. Collective over `comm`.
Status same_on_all_ranks(Communicator& comm, std::uint64_t checksum, const std::string& what, Deadline deadline);

} // namespace entrodraft::dist
