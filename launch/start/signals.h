// Signals that end a run: SIGTERM, SIGUSR1, SIGINT and SIGHUP set a flag that travels in the next round's status word.
//
// A second signal ends the process at once. So does SIGTERM if work is still running 0.5 s later, unless `drains` is
// set. This is the module's only process-wide state, because signal handlers can access no other state.
#pragma once

#include <atomic>

namespace entrodraft::launch {

// Installs the handlers, once and early. Ignores SIGPIPE, so that a closed pipe is a write error. `prints`: this rank
// says on stderr that it abandons a round. The handlers stay until the process ends: with the default handler of
// SIGTERM, ranks that exited with 75 at different times under `srun -K1` gave 143.
// `drains`: SIGTERM lets what is under way end, however long that takes.
void install_signal_handlers(bool prints, bool drains = false);

// `failure` is where another rank leaves the exit code of its failure (0: none). If the launcher then ends the job by
// SIGTERM, that is no reason for another code or a message. `failure` outlives the handlers.
void note_failure_of_job(const std::atomic<int>& failure);

// Returns 0, or the first signal seen.
const volatile int& stop_signal();

// The work has ended in order, so no timer may cut it off any more.
void cancel_abort_timer();

} // namespace entrodraft::launch
