// What people see on stderr: see report.h.
#include "launch/io/report.h"

#include "launch/counted.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
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

void say(const std::string& line) {
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
    if (whole >= 3600) return formatted("%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    return formatted("%ld:%02ld", whole / 60, whole % 60);
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
    if (!terminal_) return say(text);
    const std::string bar = fraction < 0 ? "" : format_bar(fraction, 24) + " ";
    write_to_stderr("\r\033[K" + (colour_ && !bar.empty() ? "\033[32m" + bar + "\033[0m" : bar) + text);
    drawn_ = true;
}

void StatusLine::clear() {
    if (drawn_) write_to_stderr("\r\033[K");
    drawn_ = false;
}

void Progress::update(double fraction, std::int64_t lines, std::int64_t new_tokens) {
    if (!line_.is_due()) return;
    const double seconds = line_.seconds();
    std::string text = counted(lines, "prompt") + ", " + counted(new_tokens, "token") + ", " +
                       formatted("%.0f tokens/s, ", static_cast<double>(new_tokens) / seconds) +
                       format_duration(seconds);
    if (fraction > 0.01) text += ", " + format_duration(seconds / fraction - seconds) + " to go";
    line_.draw(fraction, text);
}

void LoadingBar::update(std::size_t done_bytes, std::size_t total_bytes) {
    if (total_bytes == 0 || !line_.is_due()) return;
    const double done = static_cast<double>(done_bytes), total = static_cast<double>(total_bytes);
    const double seconds = line_.seconds(), fraction = done / total;
    std::string text = what_ + formatted(", %.2f of %.2f GB, ", done / 1e9, total / 1e9) +
                       formatted("%.2f GB/s", done / 1e9 / seconds);
    if (fraction > 0.01) text += ", " + format_duration(seconds / fraction - seconds) + " to go";
    line_.draw(fraction, text);
}

} // namespace entrodraft::launch
