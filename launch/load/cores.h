// How many threads a rank may use where --threads says nothing.
#pragma once

#include "dist/launch_environment.h"
#include "dist/session.h"

#include <optional>

namespace entrodraft::launch {

// What OMP_NUM_THREADS asks for, or else SLURM_CPUS_PER_TASK; nothing where neither is set. Throws BadOption where it
// is no number of threads. Local.
std::optional<int> threads_of_environment(const dist::Environment& environment);

// That of this rank's environment; else the CPUs this process may run on, shared among the ranks of its host that may
// run on the very same ones, at least 1: bound ranks use what they are bound to, and unbound ones cores / local ranks.
// Throws OrderlyFailure. Collective over the world.
int default_threads(dist::Session& session, double timeout_seconds);

} // namespace entrodraft::launch
