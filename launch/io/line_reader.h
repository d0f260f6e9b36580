// Reads lines of a file or of stdin, one at a time. A file of any size takes only the memory of its longest line.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace entrodraft::launch {

struct Line {
    std::string text;       // without its newline
    bool too_long = false;  // longer than the limit: text is empty, and the rest was skipped
    bool terminated = true; // false: the file ends without a newline
};

class LineReader {
  public:
    static constexpr std::size_t kLongestLine = std::size_t{64} << 20;

    // "-" is stdin. A plain file is read up to its present end; text that is appended later, perhaps by this run, is
    // not read. Throws std::runtime_error naming the file.
    explicit LineReader(const std::string& file, std::size_t longest_line = kLongestLine);
    ~LineReader();
    LineReader(const LineReader&) = delete;
    LineReader& operator=(const LineReader&) = delete;

    // Returns the next line. Returns nothing at the end, if a signal interrupted the wait for a line, or if patience
    // ran out. Throws std::runtime_error.
    std::optional<Line> next();
    bool interrupted() const { return interrupted_; }
    bool waiting() const { return waiting_; } // the last next() ran out of patience: ask again
    // Limits how long next() waits for a line that has not come or not ended. Without it, next() waits without limit.
    void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }
    const std::string& file() const { return file_; }
    std::uint64_t bytes_read() const { return bytes_read_; } // bytes of whole lines that were returned
    std::uint64_t file_bytes() const { return file_bytes_; } // 0: not a regular file
    bool is_plain_file() const { return plain_file_; }

  private:
    using Time = std::chrono::steady_clock::time_point;

    int patience_left(Time began) const;
    bool await_bytes(Time began);
    bool fill();

    std::string file_;
    std::size_t longest_line_;
    int descriptor_ = -1;
    bool at_end_ = false;
    bool interrupted_ = false;
    bool waiting_ = false;
    bool plain_file_ = false;
    bool skipping_ = false; // within a line that is too long
    std::optional<std::chrono::milliseconds> patience_;
    std::string buffer_;
    std::size_t position_ = 0; // first byte of buffer_ that was not returned
    std::uint64_t bytes_read_ = 0;
    std::uint64_t file_bytes_ = 0;
    std::optional<std::uint64_t> bytes_left_; // for a plain file with a known size (/proc gives none)
};

} // namespace entrodraft::launch
