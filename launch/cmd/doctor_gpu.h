// The checks of doctor --gpu: the GPUs that ranks would use, their links, and whether their kernels compute correctly.
#pragma once

#include "dist/session/session.h"
#include "launch/cmd/doctor_report.h"

#include <cstddef>

namespace entrodraft::launch {

// Adds GPUs, checks and times of sums over the GPUs to the report. The sums are of rows of `hidden` numbers, each
// `repetitions` times. A check fails if a rank sees no GPU, or if its GPU and its CPU compute different results. They
// run small models with random weights, of each kind of arithmetic, in every type. Collective over the world.
void look_at_gpus(dist::Session& session, int threads, std::size_t hidden, int repetitions, DoctorReport& report);

} // namespace entrodraft::launch
