// Measures the limits of these threads: bytes read and arithmetic per second. The benches compare with them.
#pragma once

#include "model/host/thread_team.h"

#include <cstddef>

namespace entrodraft::model {

// Returns the bytes per second at which the team reads an array of `bytes` bytes again and again, each thread its own
// part. Takes the faster of a plain and a prefetched read, each the median of several.
double read_rate(ThreadTeam& team, std::size_t bytes);

// Returns the team's floating-point operations per second on float32 in registers: the median of several runs. Multiply
// and add count as two.
double arithmetic_peak(ThreadTeam& team);

} // namespace entrodraft::model
