// What people see on stderr while a command runs: messages and progress. Formatting is pure. summary.h has the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace entrodraft::launch {

// One line to stderr, in one write.
void log_line(const std::string& line);

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
    void draw_with_time_left(double fraction, const std::string& text); // the same, and how long the rest will take
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

// How far the reading of a model has come; gone with the object.
class LoadingBar {
  public:
    LoadingBar(std::string what, bool quiet) : what_(std::move(what)), line_(quiet) {}

    void update(std::size_t done_bytes, std::size_t total_bytes);

  private:
    std::string what_; // "loading the target"
    StatusLine line_;
};

} // namespace entrodraft::launch
