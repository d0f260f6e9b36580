// Turns return codes of MPI, CUDA and NCCL into dist::Error with rank, call and place. Codes are plain ints, so
// that no mpi.h, nccl.h or CUDA header is needed here. Called by the sources of this module only.
#pragma once

#include <source_location>
#include <string>

namespace entrodraft::dist {

// The rank of this process in the MPI world, 0 without MPI.
int world_rank_or_zero();

// Throws the Error that those below say.
[[noreturn]] void fail(const char* call, const std::string& reason, const std::source_location& place);

// Each throws Error("[rank r] CALL failed at FILE:LINE: REASON") unless `code` says success.
void check_mpi(int code, const char* call, std::source_location place = std::source_location::current());
void check_cuda(int code, const char* call, std::source_location place = std::source_location::current());
void check_nccl(int code, const char* call, std::source_location place = std::source_location::current());

} // namespace entrodraft::dist
