// The program's entry. program.cpp does the work; the tests of failures run program.cpp, too.
#include "launch/cmd/program.h"
#include "launch/start/failure.h"

#include <fcntl.h>
#include <unistd.h>

using namespace entrodraft;

namespace {

// If a standard descriptor is closed, the next opened file gets its number, and messages would go into results. The
// replacement fails like a closed descriptor: stdin cannot be read, and the others cannot be written.
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
