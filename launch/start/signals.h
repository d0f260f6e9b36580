// Signals that end a run: SIGTERM, SIGUSR1, SIGINT, SIGHUP set a flag that travels in the next round's status word.
//
// A second one ends the process at once, and so does a round that has not ended 0.5 s after SIGTERM.
// The only process-wide state of this module, because signal handlers can reach no other.
#pragma once

#include <atomic>

namespace entrodraft::launch {

// Installs the handlers, and ignores SIGPIPE so that a closed pipe is a write error. `prints`: this rank says on stderr
// that it abandons a round. Once, early. The handlers stay until the process ends: with the default handler of
// SIGTERM, ranks exiting 75 apart under `srun -K1` gave 143.
void install_signal_handlers(bool prints);

// Where another rank leaves the exit code of its failure (0: none): a SIGTERM that comes because the launcher ends the
// job after it is not a reason for another code or a message. The place outlives the handlers.
void note_failure_of_job(const std::atomic<int>& failure);

// 0, or the first signal seen.
const volatile int& stop_signal();

// The work has come to its end in order: no timer is to cut it off any more.
void cancel_abort_timer();

} // namespace entrodraft::launch
