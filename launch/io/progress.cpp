// Messages and progress on stderr: see progress.h.
#include "launch/io/progress.h"

#include "launch/start/counted.h"

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
        if (written <= 0) return; // nobody reads stderr any more
        done += static_cast<std::size_t>(written);
    }
}

} // namespace

void log_line(const std::string& line) {
    write_to_stderr(line + "\n");
}

std::string format_bar(double fraction, int width) {
    const double held = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
    const auto filled = static_cast<std::size_t>(std::lround(held * width));
    return "[" + std::string(filled, '#') + std::string(static_cast<std::size_t>(width) - filled, '-') + "]";
}

std::string format_duration(double seconds) {
    const long whole = std::lround(std::max(0.0, seconds));
    if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string format_rate(double per_second) {
    return fmt::format("{:.{}f}", per_second, per_second < 9.95 ? 1 : 0);
}

std::optional<double> seconds_to_go(double from, double fraction, double seconds) {
    const double done = fraction - std::max(from, 0.0);
    if (!(done > 0.01)) return std::nullopt;
    return std::max(0.0, seconds * (1 - fraction) / done);
}

StatusLine::StatusLine(bool quiet)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()), last_(start_) {
    const char* no_colour = std::getenv("NO_COLOR");
    colour_ = no_colour == nullptr || *no_colour == '\0';
}

void StatusLine::begin(double fraction) {
    start_ = std::chrono::steady_clock::now();
    first_fraction_ = fraction;
}

void StatusLine::update(double fraction, const std::function<std::string(double seconds)>& text) {
    const Time now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> since_last = now - last_, since_start = now - start_;
    if (quiet_ || since_last.count() < (terminal_ ? 0.1 : 30.0)) return;
    last_ = now;
    const double seconds = since_start.count();
    std::string line = text(seconds);
    if (const auto left = seconds_to_go(first_fraction_, fraction, seconds))
        line += fmt::format(", {} to go", format_duration(*left));
    if (!terminal_) return log_line(line);
    const std::string bar = fraction < 0 ? "" : format_bar(fraction, 24) + " ";
    write_to_stderr("\r\033[K" + (colour_ && !bar.empty() ? "\033[32m" + bar + "\033[0m" : bar) + line);
    drawn_ = true;
}

void StatusLine::clear() {
    if (drawn_) write_to_stderr("\r\033[K");
    drawn_ = false;
}

void Progress::begin(double fraction, std::int64_t new_tokens) {
    StatusLine::begin(fraction);
    first_tokens_ = new_tokens;
}

void Progress::update(double fraction, std::int64_t lines, std::int64_t new_tokens) {
    StatusLine::update(fraction, [&](double seconds) {
        return fmt::format("{}, {}, {} tokens/s, {}", counted(lines, "prompt"), counted(new_tokens, "token"),
                           format_rate(static_cast<double>(new_tokens - first_tokens_) / seconds),
                           format_duration(seconds));
    });
}

void LoadingBar::update(std::size_t done_bytes, std::size_t total_bytes) {
    if (total_bytes == 0) return;
    const double done = static_cast<double>(done_bytes) / 1e9, total = static_cast<double>(total_bytes) / 1e9;
    StatusLine::update(done / total, [&](double seconds) {
        return fmt::format("{}, {:.2f} of {:.2f} GB, {:.2f} GB/s", what_, done, total, done / seconds);
    });
}

} // namespace entrodraft::launch
