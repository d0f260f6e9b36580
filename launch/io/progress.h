// Messages and progress on stderr while a command runs. The formatting is pure. summary.h formats the summary at the
// end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace entrodraft::launch {

// Writes one line to stderr, in one write.
void log_line(const std::string& line);

// Returns a bar of `width` characters: "[####------]". `fraction` is clamped to [0, 1].
std::string format_bar(double fraction, int width);
// Returns "0:42" or "1:03:07".
std::string format_duration(double seconds);

// Returns tokens a second as "0.4", "9.6", "12" or "3035".
std::string format_rate(double per_second);
// Estimates the remaining time. In the last `seconds`, the work went from the share `from` to the share `fraction`.
// Returns nothing if that is too little to tell.
std::optional<double> seconds_to_go(double from, double fraction, double seconds);

// On a terminal, a bar that is redrawn at most ten times a second; elsewhere, a plain line each half minute; nothing if
// quiet. It disappears with the object.
class StatusLine {
  public:
    explicit StatusLine(bool quiet);
    ~StatusLine() { clear(); }
    StatusLine(const StatusLine&) = delete;
    StatusLine& operator=(const StatusLine&) = delete;

    // Begins the work, with this share of it done already. Earlier work does not count for the rate.
    void begin(double fraction);
    // `fraction` is the share that is done; if it is unknown it is negative, and there is no bar and no remaining time.
    // `text` is called when it is time to draw again, with the seconds since the start.
    void update(double fraction, const std::function<std::string(double seconds)>& text);
    // Removes the bar so that other text can be printed.
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

// Progress through a file of prompts. `fraction` is the share of the input; negative if its length is unknown.
class Progress : public StatusLine {
  public:
    using StatusLine::StatusLine;
    // `new_tokens`: the number of tokens that exist already.
    void begin(double fraction, std::int64_t new_tokens);
    void update(double fraction, std::int64_t lines, std::int64_t new_tokens);

  private:
    std::int64_t first_tokens_ = 0;
};

// Progress of reading a model; `what` names the work: "loading the target".
class LoadingBar : public StatusLine {
  public:
    LoadingBar(std::string what, bool quiet) : StatusLine(quiet), what_(std::move(what)) {}
    void update(std::size_t done_bytes, std::size_t total_bytes);

  private:
    std::string what_;
};

} // namespace entrodraft::launch
