// Declares how a run ends: the exit codes, and the exceptions that main turns into a message and one of these codes.
// Any other exception is a failure of one rank alone: main prints it and aborts the job.
#pragma once

#include <stdexcept>
#include <string>

namespace entrodraft::launch {

enum ExitCode : int {
    kAllServed = 0,
    kFailure = 1,
    kBadOptions = 2,
    kSomeLinesFailed = 3,
    kStopped = 75, // stopped by a signal, after a clean flush: run again with --resume
};

// An option or argument that cannot be honoured; what() is one line that names it. Exit code 2.
class BadOption final : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

inline void refuse_if(bool is_bad, const std::string& message) {
    if (is_bad) throw BadOption(message);
}

// A failure that every rank knows of, with one message and one code: all leave together.
class OrderlyFailure final : public std::runtime_error {
  public:
    OrderlyFailure(int exit_code, const std::string& message) : std::runtime_error(message), exit_code_(exit_code) {}
    int exit_code() const { return exit_code_; }

  private:
    int exit_code_;
};

} // namespace entrodraft::launch
