// The program: starts the session, runs a command, and turns whatever it throws into a message and an exit code.
//
// The only place that does so. A failure that all ranks know of is printed once and all leave; any other is one
// rank's own, and the job is torn down, since the other ranks may be waiting for it.
#include "entrodraft/dist/session.h"
#include "entrodraft/launch/commands.h"
#include "entrodraft/launch/failure.h"
#include "entrodraft/launch/report.h"
#include "entrodraft/spec/generate.h"

#include <exception>
#include <fcntl.h>
#include <optional>
#include <string>
#include <unistd.h>

using namespace entrodraft;

namespace {

// A standard descriptor that was closed would go to the next file opened, and messages into results. What takes its
// place fails as a closed one does: stdin cannot be read, the others not be written.
void occupy_closed_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(descriptor, F_GETFD) < 0 &&
            open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) != descriptor)
            _exit(launch::kFailure);
}

} // namespace

int main(int argc, char** argv) {
    occupy_closed_descriptors();
    const launch::Arguments arguments(argv + 1, argv + argc);
    std::optional<dist::Session> session;
    try {
        session.emplace(dist::Session::start(&argc, &argv));
        int exit_code = launch::kFailure;
        try {
            exit_code = launch::run_command(*session, arguments);
        } catch (const launch::OrderlyFailure& failure) {
            if (session->world_rank() == 0) launch::say(std::string("entrodraft: ") + failure.what());
            exit_code = failure.exit_code();
        }
        session->leave(exit_code);
    } catch (const spec::RoundError& error) {
        launch::say("entrodraft: [rank " + std::to_string(session->world_rank()) + ", round " +
                    std::to_string(error.round()) + ", " + error.step() + "] " + error.what());
        session->abort(launch::kFailure);
    } catch (const std::exception& error) {
        launch::say(std::string("entrodraft: ") + error.what());
        if (session) session->abort(launch::kFailure);
        return launch::kFailure;
    }
}
