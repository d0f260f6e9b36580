// Turns return codes of MPI, CUDA and NCCL into dist::Error with rank, call and place. Codes are plain ints, so this
// file needs neither mpi.h, nccl.h nor a CUDA header. Only the sources of this module call it.
#pragma once

#include <source_location>
#include <string>

namespace entrodraft::dist {

// The rank of this process in the MPI world, 0 without MPI.
int world_rank_or_zero();

// Throws the Error that the functions below describe.
[[noreturn]] void fail(const char* call, const std::string& reason, const std::source_location& place);

// Each throws Error("[rank r] CALL failed at FILE:LINE: REASON") unless `code` says success.
void check_mpi(int code, const char* call, std::source_location place = std::source_location::current());
void check_cuda(int code, const char* call, std::source_location place = std::source_location::current());
void check_nccl(int code, const char* call, std::source_location place = std::source_location::current());

} // namespace entrodraft::dist
