// What people see on stderr: see progress.h.
#include "launch/io/progress.h"

#include "launch/counted.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

void write_to_stderr(const std::string& text) {
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t written = write(STDERR_FILENO, text.data() + done, text.size() - done);
        if (written <= 0) return; // nobody is left to tell
        done += static_cast<std::size_t>(written);
    }
}

} // namespace

void log_line(const std::string& line) {
    write_to_stderr(line + "\n");
}

std::string format_bar(double fraction, int width) {
    const double held = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
    std::string bar(static_cast<std::size_t>(width) + 2, '-');
    bar.front() = '[';
    bar.back() = ']';
    std::fill_n(bar.begin() + 1, std::lround(held * width), '#');
    return bar;
}

std::string format_duration(double seconds) {
    const long whole = std::lround(std::max(0.0, seconds));
    if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

StatusLine::StatusLine(bool quiet)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()), last_(start_) {
    const char* no_colour = std::getenv("NO_COLOR");
    colour_ = no_colour == nullptr || *no_colour == '\0';
}

StatusLine::~StatusLine() {
    clear();
}

bool StatusLine::is_due() {
    if (quiet_) return false;
    const Time now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> since_last = now - last_;
    if (since_last.count() < (terminal_ ? 0.1 : 30.0)) return false;
    last_ = now;
    return true;
}

double StatusLine::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void StatusLine::draw(double fraction, const std::string& text) {
    if (!terminal_) return log_line(text);
    const std::string bar = fraction < 0 ? "" : format_bar(fraction, 24) + " ";
    write_to_stderr("\r\033[K" + (colour_ && !bar.empty() ? "\033[32m" + bar + "\033[0m" : bar) + text);
    drawn_ = true;
}

void StatusLine::clear() {
    if (drawn_) write_to_stderr("\r\033[K");
    drawn_ = false;
}

void StatusLine::draw_with_time_left(double fraction, const std::string& text) {
    const double seconds = this->seconds();
    draw(fraction,
         fraction > 0.01 ? fmt::format("{}, {} to go", text, format_duration(seconds / fraction - seconds)) : text);
}

void Progress::update(double fraction, std::int64_t lines, std::int64_t new_tokens) {
    if (!line_.is_due()) return;
    const double seconds = line_.seconds();
    line_.draw_with_time_left(
        fraction, fmt::format("{}, {}, {:.0f} tokens/s, {}", counted(lines, "prompt"), counted(new_tokens, "token"),
                              static_cast<double>(new_tokens) / seconds, format_duration(seconds)));
}

void LoadingBar::update(std::size_t done_bytes, std::size_t total_bytes) {
    if (total_bytes == 0 || !line_.is_due()) return;
    const double done = static_cast<double>(done_bytes) / 1e9, total = static_cast<double>(total_bytes) / 1e9;
    line_.draw_with_time_left(
        done / total, fmt::format("{}, {:.2f} of {:.2f} GB, {:.2f} GB/s", what_, done, total, done / line_.seconds()));
}

} // namespace entrodraft::launch
