// What people see on stderr: progress while it runs, a summary at its end. Formatting is pure.
#pragma once

#include "entrodraft/launch/options/options.h"
#include "entrodraft/spec/stats.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

// One line to stderr, in one write.
void say(const std::string& line);

// What a replica has done.
struct Tally {
    spec::Stats stats;
    std::int64_t served = 0;
    std::int64_t with_error = 0;
    std::int64_t checked = 0;
    std::int64_t check_differs = 0;
    double busy_seconds = 0; // in which it had a text under way

    Tally& operator+=(const Tally& other);
};

struct RunSummary : Tally {                    // of all replicas
    std::int64_t resumed = 0;                  // lines that an earlier run had served
    std::vector<double> replicas_busy_seconds; // of each; empty: there is one
    double wall_seconds = 0;
    int batch_size = 1;
    int ranks = 1;
    int threads = 1;
    std::string slowest_rank; // and how long the others waited for it; empty: nobody to speak of
    SpeculationOptions speculation;
    std::optional<spec::Costs> costs; // that the run was given; none: what it measured itself stands in
    double operations_ratio = 0;      // of a draft's row over a target's; 0: no draft model
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
class StatusLine {
  public:
    explicit StatusLine(bool quiet);
    ~StatusLine();
    StatusLine(const StatusLine&) = delete;
    StatusLine& operator=(const StatusLine&) = delete;

    // Whether it is time to draw again.
    bool is_due();
    double seconds() const; // since the start
    // `fraction` done, negative where that is unknown: then there is no bar.
    void draw(double fraction, const std::string& text);
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

// How far a file of prompts has come.
class Progress {
  public:
    explicit Progress(bool quiet) : line_(quiet) {}

    // `fraction` of the input, negative where its length is unknown.
    void update(double fraction, std::int64_t lines, std::int64_t new_tokens);
    // Takes the bar away so that other text may be printed.
    void clear() { line_.clear(); }

  private:
    StatusLine line_;
};

// How far the loading of a model has come; gone with the object.
class LoadingBar {
  public:
    LoadingBar(std::string what, bool quiet) : what_(std::move(what)), line_(quiet) {}

    void update(std::size_t done_bytes, std::size_t total_bytes);

  private:
    std::string what_; // "target"
    StatusLine line_;
};

} // namespace entrodraft::launch
