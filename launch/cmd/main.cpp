// The program's entry. What it does is in program.cpp, which the tests of failures run as well.
#include "launch/cmd/program.h"
#include "launch/start/failure.h"

#include <fcntl.h>
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
    return launch::run_program(argc, argv, nullptr);
}
