// What people see on stderr while a command runs: messages and progress. Formatting is pure. summary.h has the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace entrodraft::launch {

// One line to stderr, in one write.
void log_line(const std::string& line);

// A bar of `width` characters: "[####------]". `fraction` outside [0, 1] is held at its ends.
std::string format_bar(double fraction, int width);
// "0:42", "1:03:07".
std::string format_duration(double seconds);

// "0.4", "9.6", "12", "3035": of tokens a second.
std::string format_rate(double per_second);
// The time that the rest takes at the rate of the last `seconds`, in which the work went from the share `from` to the
// share `fraction`; none where that is too little to tell.
std::optional<double> seconds_to_go(double from, double fraction, double seconds);

// A bar on a terminal, redrawn at most ten times a second; a plain line each half minute elsewhere; nothing when quiet.
// Gone with the object.
class StatusLine {
  public:
    explicit StatusLine(bool quiet);
    ~StatusLine() { clear(); }
    StatusLine(const StatusLine&) = delete;
    StatusLine& operator=(const StatusLine&) = delete;

    // The work begins here, with this share of it done already: what came before says nothing of its rate.
    void begin(double fraction);
    // `fraction` done, negative where that is unknown: then there is no bar, nor how long the rest will take. `text` is
    // called where it is time to draw again, with the seconds since the start.
    void update(double fraction, const std::function<std::string(double seconds)>& text);
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
    double first_fraction_ = 0;
};

// How far a file of prompts has come; `fraction` of the input, negative where its length is unknown.
class Progress : public StatusLine {
  public:
    using StatusLine::StatusLine;
    // With so many tokens there already.
    void begin(double fraction, std::int64_t new_tokens);
    void update(double fraction, std::int64_t lines, std::int64_t new_tokens);

  private:
    std::int64_t first_tokens_ = 0;
};

// How far the reading of a model has come; `what` is done: "loading the target".
class LoadingBar : public StatusLine {
  public:
    LoadingBar(std::string what, bool quiet) : StatusLine(quiet), what_(std::move(what)) {}
    void update(std::size_t done_bytes, std::size_t total_bytes);

  private:
    std::string what_;
};

} // namespace entrodraft::launch
