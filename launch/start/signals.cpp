// Signals that end a run: see signals.h. Handlers call async-signal-safe functions only.
#include "launch/start/signals.h"

#include "launch/start/failure.h"

#include <csignal>
#include <ctime>
#include <stdexcept>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

constexpr long kAbortNanoseconds = 500'000'000;
constexpr int kInterrupted = 130; // shells expect this code after Ctrl-C

// The signal handlers read and write these.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
volatile int first_signal = 0;
timer_t abort_timer;
volatile sig_atomic_t timer_made = 0;
volatile sig_atomic_t prints_abort = 0;
volatile sig_atomic_t sigterm_drains = 0;
const std::atomic<int>* volatile failure_of_job = nullptr;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)
static_assert(std::atomic<int>::is_always_lock_free, "it is read in signal handlers");

void set_timer(long nanoseconds) {
    itimerspec when{};
    when.it_value.tv_nsec = nanoseconds;
    timer_settime(abort_timer, 0, &when, nullptr);
}

void exit_if_job_failed() {
    if (failure_of_job == nullptr) return;
    if (const int code = failure_of_job->load(); code != 0) _exit(code);
}

extern "C" void on_stop(int signal) {
    if (first_signal != 0) {
        exit_if_job_failed();
        _exit(signal == SIGINT ? kInterrupted : kStopped);
    }
    first_signal = signal;
    if (signal == SIGTERM && timer_made != 0 && sigterm_drains == 0) set_timer(kAbortNanoseconds);
}

extern "C" void on_abort_timer(int) {
    constexpr char kMessage[] =
        "entrodraft: stopped by SIGTERM; what was under way did not end in time and is dropped\n";
    exit_if_job_failed();
    if (prints_abort != 0 && write(STDERR_FILENO, kMessage, sizeof kMessage - 1) < 0) _exit(kStopped);
    _exit(kStopped);
}

void handle(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler; // no SA_RESTART: a wait for input ends
    sigemptyset(&action.sa_mask);
    if (sigaction(signal, &action, nullptr) != 0) throw std::runtime_error("cannot install a signal handler");
}

} // namespace

void install_signal_handlers(bool prints, bool drains) {
    prints_abort = prints ? 1 : 0;
    sigterm_drains = drains ? 1 : 0;
    handle(SIGALRM, on_abort_timer);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGALRM;
    if (timer_create(CLOCK_MONOTONIC, &event, &abort_timer) == 0) timer_made = 1;
    handle(SIGPIPE, SIG_IGN);
    for (int signal : {SIGTERM, SIGUSR1, SIGINT})
        handle(signal, on_stop);
    struct sigaction hangup {};
    const bool outlives_terminal = sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN; // nohup
    if (!outlives_terminal) handle(SIGHUP, on_stop);
}

const volatile int& stop_signal() {
    return first_signal;
}

void note_failure_of_job(const std::atomic<int>& failure) {
    failure_of_job = &failure;
}

void cancel_abort_timer() {
    if (timer_made != 0) set_timer(0);
}

} // namespace entrodraft::launch
