// Reads lines of a file or of stdin: see line_reader.h.
#include "launch/io/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <utility>

namespace entrodraft::launch {

namespace {

// True for Linux's /dev/zero, /dev/full, /dev/random and /dev/urandom.
bool is_endless_device(const struct stat& info) {
    constexpr unsigned kMemoryDevices = 1;
    if (!S_ISCHR(info.st_mode) || major(info.st_rdev) != kMemoryDevices) return false;
    const unsigned number = minor(info.st_rdev);
    return number == 5 || (number >= 7 && number <= 9);
}

} // namespace

LineReader::LineReader(const std::string& file, std::size_t longest_line)
    : file_(file == "-" ? "stdin" : file), longest_line_(longest_line) {
    // A named pipe may have no writer yet: next() waits for it, not open().
    descriptor_ = file == "-" ? STDIN_FILENO : open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) throw std::runtime_error(file_ + ": cannot be opened: " + std::strerror(errno));
    if (file != "-") fcntl(descriptor_, F_SETFL, 0);
    struct stat info {};
    if (fstat(descriptor_, &info) == 0) {
        if (S_ISDIR(info.st_mode) || is_endless_device(info)) {
            if (descriptor_ > STDIN_FILENO) close(descriptor_);
            throw std::runtime_error(file_ + (S_ISDIR(info.st_mode)
                                                  ? ": is a directory; name a file"
                                                  : ": is a device without end; name a file or a pipe"));
        }
        plain_file_ = S_ISREG(info.st_mode);
        if (plain_file_) file_bytes_ = static_cast<std::uint64_t>(info.st_size);
        const off_t position = plain_file_ ? lseek(descriptor_, 0, SEEK_CUR) : -1;
        if (file_bytes_ > 0 && position >= 0)
            bytes_left_ = file_bytes_ - std::min(file_bytes_, static_cast<std::uint64_t>(position));
    }
}

LineReader::~LineReader() {
    if (descriptor_ > STDIN_FILENO) close(descriptor_);
}

// Returns milliseconds; -1 means without limit, as for poll().
int LineReader::patience_left(Time began) const {
    if (!patience_) return -1;
    const auto left = began + *patience_ - std::chrono::steady_clock::now();
    return std::max(0, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
}

// Returns false if a signal came first, or if patience ran out.
bool LineReader::await_bytes(Time began) {
    pollfd awaited{descriptor_, POLLIN, 0};
    const int ready = poll(&awaited, 1, patience_left(began));
    if (ready < 0 && errno != EINTR) throw std::runtime_error(file_ + ": cannot be read: " + std::strerror(errno));
    interrupted_ = ready < 0;
    waiting_ = ready == 0;
    return ready > 0;
}

// Returns false if a signal came first.
bool LineReader::fill() {
    constexpr std::size_t kChunk = std::size_t{64} << 10;
    buffer_.erase(0, position_);
    position_ = 0;
    const std::size_t before = buffer_.size();
    const std::size_t wanted = bytes_left_ ? std::min<std::uint64_t>(kChunk, *bytes_left_) : kChunk;
    buffer_.resize(before + wanted);
    const ssize_t got = read(descriptor_, buffer_.data() + before, wanted);
    buffer_.resize(before + static_cast<std::size_t>(got > 0 ? got : 0));
    if (bytes_left_ && got > 0) *bytes_left_ -= static_cast<std::uint64_t>(got);
    interrupted_ = got < 0 && errno == EINTR;
    if (interrupted_) return false;
    if (got < 0) throw std::runtime_error(file_ + ": cannot be read: " + std::strerror(errno));
    if (got == 0) at_end_ = true;
    return true;
}

std::optional<Line> LineReader::next() {
    const Time began = std::chrono::steady_clock::now();
    Line line;
    line.too_long = std::exchange(skipping_, false);
    std::size_t searched = 0; // bytes after position_ known to hold no newline
    for (;;) {
        const std::size_t newline = buffer_.find('\n', position_ + searched);
        const std::size_t end = newline == std::string::npos ? buffer_.size() : newline;
        if (end - position_ > longest_line_) line.too_long = true;
        const bool ends = newline != std::string::npos || at_end_;
        if (ends && newline == std::string::npos && end == position_ && !line.too_long) return std::nullopt;
        if (ends) {
            line.terminated = newline != std::string::npos;
            if (!line.too_long) line.text = buffer_.substr(position_, end - position_);
            bytes_read_ += end - position_ + (line.terminated ? 1 : 0);
            position_ = end + (line.terminated ? 1 : 0);
            return line;
        }
        searched = end - position_;
        if (line.too_long) { // the text of such a line is not kept
            bytes_read_ += searched;
            position_ = end;
            searched = 0;
        }
        if (!await_bytes(began) || !fill()) {
            skipping_ = line.too_long;
            return std::nullopt;
        }
        if (line.too_long && patience_left(began) == 0) { // the line may never end, as in /dev/zero
            skipping_ = waiting_ = true;
            return std::nullopt;
        }
    }
}

} // namespace entrodraft::launch
