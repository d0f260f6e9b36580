// The messages of failed calls.
#include "dist/rank/check.h"

#include "dist/rank/error.h"

#include <mpi.h>

#include <fmt/format.h>
#include <string>

namespace entrodraft::dist {

void fail(const char* call, const std::string& reason, const std::source_location& place) {
    std::string file = place.file_name();
    file = file.substr(file.find_last_of('/') + 1);
    throw Error(
        fmt::format("[rank {}] {} failed at {}:{}: {}", world_rank_or_zero(), call, file, place.line(), reason));
}

int world_rank_or_zero() {
    int initialized = 0;
    int finalized = 0;
    int rank = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized != 0 && finalized == 0) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

void check_mpi(int code, const char* call, std::source_location place) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    fail(call, text, place);
}

} // namespace entrodraft::dist
