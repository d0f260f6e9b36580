// The program without its main: a session, a command, and the handling of its exceptions. main calls this. The tests of
// failures also call it, with an observer that fails on purpose.
#pragma once

#include "dist/rank/step_watch.h"

namespace entrodraft::launch {

// Runs the command that the arguments name, to the end of the process. If all ranks know of a failure, it is printed
// once and all leave with one code. Any other failure belongs to one rank: the job is torn down, since other ranks may
// wait for that rank. `observer` is told of every step; it may be null. Returns only if no session could be started.
// Collective over the world.
int run_program(int argc, char** argv, dist::StepWatch* observer);

} // namespace entrodraft::launch
