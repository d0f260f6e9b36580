// The program but for its main: a session, a command, and what becomes of what it throws.
//
// Called by main, and by the tests of failures with an observer that fails on purpose.
#pragma once

#include "dist/rank/step_watch.h"

namespace entrodraft::launch {

// Runs the command that the arguments name, to the end of the process. A failure that all ranks know of is printed
// once and all leave with one code; any other is one rank's own, and the job is torn down, since the other ranks may be
// waiting for it. `observer`, which may be null, is told of every step. Returns only where no session could be started.
// Collective over the world.
int run_program(int argc, char** argv, dist::StepWatch* observer);

} // namespace entrodraft::launch
