// What these threads could do at best: bytes read and arithmetic done in a second. The benches' yardsticks.
#pragma once

#include "model/host/thread_team.h"

#include <cstddef>

namespace entrodraft::model {

// Bytes a second at which the team reads an array of `bytes` bytes again and again, each thread its own part: the
// faster of a plain and a prefetched read, each the median of several.
double read_rate(ThreadTeam& team, std::size_t bytes);

// Floating-point operations a second of the team on float32 in registers, multiply and add counted as two: the
// median of several runs.
double arithmetic_peak(ThreadTeam& team);

} // namespace entrodraft::model
