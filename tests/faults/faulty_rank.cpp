// The program with one rank that fails on purpose, at a step of its choice: for tests/faults/matrix.py only.
//
//   faulty_rank RANK:KIND@STEP:TIMES COMMAND [options]
//
// Does what entrodraft does, until rank RANK begins step STEP for the TIMES-th time. Step "init" is before MPI starts.
// Kinds: kill, stop (SIGSTOP), throw, exit (code 0), leave (_exit, code 3), hang, slow (20 ms each time from then on),
// full (no file of this rank may grow by more than 40 bytes); none.
#include "dist/rank/launch_environment.h"
#include "launch/cmd/program.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <regex>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace {

using namespace entrodraft;

struct Fault {
    int rank = -1;
    std::string kind;
    std::string step;
    int times = 1;
};

Fault fault_of(const std::string& text) {
    std::smatch parts;
    if (!std::regex_match(text, parts, std::regex("(\\d+):(\\w+)@(\\w+):(\\d+)")))
        throw std::invalid_argument("no fault: " + text);
    return {std::stoi(parts[1]), parts[2], parts[3], std::stoi(parts[4])};
}

void fill_disk(const std::string& output) {
    std::error_code none_yet;
    const auto size = std::filesystem::file_size(output, none_yet);
    const rlim_t most = (none_yet ? 0 : static_cast<rlim_t>(size)) + 40;
    const rlimit limit = {most, most};
    setrlimit(RLIMIT_FSIZE, &limit);
}

class FaultyRank final : public dist::StepWatch {
  public:
    FaultyRank(Fault fault, std::string output)
        : fault_(std::move(fault)), output_(std::move(output)),
          is_it_(dist::launcher_rank(dist::process_environment()) == fault_.rank) {}

    void enter(std::uint64_t, const char* step) override {
        if (!is_it_ || fault_.step != step || ++seen_ < fault_.times) return;
        if (fault_.kind == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (seen_ == fault_.times) fail();
    }

  private:
    void fail() {
        if (fault_.kind == "kill") raise(SIGKILL);
        if (fault_.kind == "stop") raise(SIGSTOP);
        if (fault_.kind == "throw") throw std::runtime_error("a fault on purpose");
        if (fault_.kind == "exit") std::exit(0);
        if (fault_.kind == "leave") _exit(3);
        if (fault_.kind == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
        if (fault_.kind == "full") fill_disk(output_);
    }

    Fault fault_;
    std::string output_;
    bool is_it_;
    int seen_ = 0;
};

std::string output_of(int argc, char** argv) {
    for (int i = 0; i + 1 < argc; ++i)
        if (std::string(argv[i]) == "--output") return argv[i + 1];
    return "";
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::cerr << "usage: faulty_rank RANK:KIND@STEP:TIMES COMMAND [options]\n";
        return 2;
    }
    FaultyRank fault(fault_of(argv[1]), output_of(argc, argv));
    fault.enter(dist::kNoRound, "init");
    argv[1] = argv[0];
    return launch::run_program(argc - 1, argv + 1, &fault);
}
