// See changed_files.h. The handler calls async-signal-safe functions only.
#include "launch/io/changed_files.h"

#include "launch/io/progress.h"
#include "launch/start/failure.h"
#include "model/files/mapped_file.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <stdexcept>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

// The handler reads these.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
dist::Session* session_of_process = nullptr;
std::array<char, 320> beginning_of_message = {};
struct sigaction handler_before {};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void write_text(const char* text) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

extern "C" void on_bus_error(int signal, siginfo_t* about, void*) {
    const bool is_sent = about->si_code <= 0; // kill() sends no address
    const char* const file = is_sent ? nullptr : model::mapped_file_at(about->si_addr);
    if (file == nullptr) {
        ::sigaction(signal, &handler_before, nullptr);
        if (is_sent) ::raise(signal);
        return; // unless it was sent, the same instruction fails again
    }
    static std::atomic_flag is_ending = ATOMIC_FLAG_INIT;
    while (is_ending.test_and_set())
        ::pause(); // another thread of this process writes the message and ends both
    if (session_of_process->claim_failure(kFailure)) {
        write_text(beginning_of_message.data());
        write_text(file);
        write_text(": became shorter while it was in use, or its disk failed; bring it back, and run again\n");
    }
    _exit(kFailure);
}

} // namespace

void end_on_lost_pages(dist::Session& session) {
    session_of_process = &session;
    std::snprintf(beginning_of_message.data(), beginning_of_message.size(), "entrodraft: [rank %d, host %s] ",
                  session.world_rank(), session.host_name().c_str());
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    if (::sigaction(SIGBUS, &action, &handler_before) != 0) throw std::runtime_error("cannot install a signal handler");
}

void warn_of_changed_files(const dist::Session& session) {
    if (session.node_local_rank() != 0) return;
    for (const std::string& file : model::take_changed_files())
        log_line(
            fmt::format("warning: {}: was written to or touched while it was in use, so the run may have read parts "
                        "of two contents; run again",
                        file));
}

} // namespace entrodraft::launch
