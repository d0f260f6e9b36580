// What kernels of the project use of NCCL. All ranks of a communicator reach each other's memory here, for they are
// threads.
#pragma once

#include "tests/cuda_stand_in/nccl.h"

struct ncclTeam_t {
    int nRanks, rank, stride;
};
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
void* ncclGetLsaPointer(ncclWindow_t window, std::size_t offset, int peer);
