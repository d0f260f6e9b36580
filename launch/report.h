// What people see on stderr: progress while it runs, a summary at its end. Formatting is pure.
#pragma once

#include "entrodraft/launch/options.h"
#include "entrodraft/spec/stats.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace entrodraft::launch {

// One line to stderr, in one write.
void say(const std::string& line);

struct RunSummary {
    spec::Stats stats;
    std::int64_t served = 0;
    std::int64_t with_error = 0;
    std::int64_t resumed = 0; // lines that an earlier run had served
    std::int64_t checked = 0;
    std::int64_t check_differs = 0;
    double wall_seconds = 0;
    int ranks = 1;
    int threads = 1;
    bool drafting = false;
    spec::StopRuleOptions rule;
    EntropyUnit entropy_unit = EntropyUnit::nats;
    double lenience = 1;
    bool interrupted = false;
    bool resumable = false; // there is an output file that --resume can go on with
};

// A few plain lines, each ended by a newline. Local.
std::string format_summary(const RunSummary& summary);

// A bar of `width` characters: "[####------]". `fraction` outside [0, 1] is held at its ends. Local.
std::string format_bar(double fraction, int width);
// "0:42", "1:03:07". Local.
std::string format_duration(double seconds);

// A bar on a terminal, redrawn at most ten times a second; a plain line each half minute elsewhere; nothing when quiet.
class Progress {
  public:
    explicit Progress(bool quiet);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // `fraction` of the input, negative where its length is unknown.
    void update(double fraction, std::int64_t lines, std::int64_t new_tokens);
    // Takes the bar away so that other text may be printed.
    void clear();

  private:
    using Time = std::chrono::steady_clock::time_point;

    bool quiet_;
    bool terminal_;
    bool colour_;
    bool drawn_ = false;
    Time start_;
    Time last_;
};

} // namespace entrodraft::launch
