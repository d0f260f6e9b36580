// What doctor --gpu looks at: the GPUs that ranks would use, what they reach, and whether their kernels compute.
#pragma once

#include "dist/session/session.h"
#include "launch/cmd/doctor_report.h"

#include <cstddef>

namespace entrodraft::launch {

// Adds GPUs, checks and the times of sums over them to the report: rows of `hidden` numbers, as often as
// `repetitions` says. A check fails where a rank sees no GPU, or where one computes otherwise than its CPU (of models
// of random weights, small ones of each kind of arithmetic, in every type). Collective over the world.
void look_at_gpus(dist::Session& session, int threads, std::size_t hidden, int repetitions, DoctorReport& report);

} // namespace entrodraft::launch
