// Messages and exit codes of the program: see program.h.
#include "launch/cmd/program.h"

#include "dist/rank/launch_environment.h"
#include "dist/session/session.h"
#include "launch/cmd/commands.h"
#include "launch/io/changed_files.h"
#include "launch/io/progress.h"
#include "launch/start/failure.h"
#include "launch/start/signals.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <new>
#include <optional>
#include <string>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

// Returns how long MPI may take to start: a little longer than ranks may wait for each other. The option of that
// timeout is not parsed yet.
double start_seconds(const Arguments& arguments) {
    constexpr double kMore = 5, kMax = 1e9; // clocks hold at most 9.2e9
    const std::string option = "--collective-timeout";
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        std::string value;
        if (arguments[i].rfind(option + "=", 0) == 0) value = arguments[i].substr(option.size() + 1);
        if (arguments[i] == option && i + 1 < arguments.size()) value = arguments[i + 1];
        if (const double seconds = std::atof(value.c_str()); seconds > 0) return std::min(seconds + kMore, kMax);
    }
    return dist::kDefaultTimeoutSeconds;
}

void report_failure(dist::Session& session, const std::string& reason) {
    if (session.claim_failure(kFailure)) log_line(fmt::format("entrodraft: [{}] {}", session.position(), reason));
}

std::string reason_of(const std::exception& error) {
    return dynamic_cast<const std::bad_alloc*>(&error) ? "out of memory" : error.what();
}

// The message for when no memory can be allocated. It names the rank's place once that is known.
using OutOfMemoryMessage = std::array<char, 256>;
OutOfMemoryMessage& out_of_memory_message() {
    static OutOfMemoryMessage message = {"entrodraft: out of memory\n"};
    return message;
}

// operator new calls this when memory has run out. It writes a message, exits with our code, and unwinds nothing:
// values of nlohmann::json cannot be unwound, because their destructors need memory and half-made values are not sound.
// The other ranks end as after any death of a rank. A shortage for weights and caches, which have memory of their own,
// is thrown as usual.
[[noreturn]] void end_without_memory() {
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, out_of_memory_message().data(), std::strlen(out_of_memory_message().data()));
    _exit(kFailure);
}

int run(int argc, char** argv, dist::StepWatch* observer) {
    const Arguments arguments(argv + 1, argv + argc);
    std::optional<dist::Session> session;
    dist::StartOptions start;
    const dist::Environment environment = dist::process_environment();
    start.is_alone = is_for_one_rank(arguments);
    if (start.is_alone && dist::started_by_launcher(environment) && dist::launcher_rank(environment) > 0)
        return kAllServed; // the first rank does it
    start.timeout_seconds = start_seconds(arguments);
    start.observer = observer;
    // The rank's own thread is stuck, so nothing can be unwound. Everything that was written ends with a whole line.
    start.on_stuck = [&](const std::string& place, const std::string& reason) {
        if (!session || session->claim_failure(kFailure)) log_line(fmt::format("entrodraft: [{}] {}", place, reason));
        _exit(kFailure);
    };
    try {
        session.emplace(dist::Session::start(start));
        note_failure_of_job(session->failure());
        end_on_lost_pages(*session);
        std::snprintf(out_of_memory_message().data(), out_of_memory_message().size(),
                      "entrodraft: [rank %d, host %s] out of memory\n", session->world_rank(),
                      session->host_name().c_str());
        int exit_code = kFailure;
        try {
            exit_code = run_command(*session, arguments);
            warn_of_changed_files(*session);
        } catch (const OrderlyFailure& failure) {
            if (session->world_rank() == 0) log_line(std::string("entrodraft: ") + failure.what());
            exit_code = failure.exit_code();
        }
        session->leave(exit_code);
    } catch (const std::exception& error) {
        if (!session) {
            const std::string place =
                dist::started_by_launcher(environment) ? "[" + dist::starting_place(environment) + "] " : "";
            log_line("entrodraft: " + place + reason_of(error));
            return kFailure;
        }
        report_failure(*session, reason_of(error));
        session->abort(kFailure);
    }
}

} // namespace

int run_program(int argc, char** argv, dist::StepWatch* observer) {
    std::set_new_handler(&end_without_memory);
    std::signal(SIGXFSZ, SIG_IGN); // a file at its size limit is a failed write
    try {
        return run(argc, argv, observer);
    } catch (const std::exception& error) { // thrown before there was a session, or while a message was formatted
        log_line("entrodraft: " + reason_of(error));
        return kFailure;
    }
}

} // namespace entrodraft::launch
