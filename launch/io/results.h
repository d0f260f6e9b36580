// Writes results as JSON lines, in input order. Only whole lines are written, each with one write. --resume reads them
// again. The lines are those of generate, on the coordinator; other commands use ResultWriter, too.
#pragma once

#include "dist/session/session.h"
#include "launch/io/json_line.h"
#include "launch/io/requests.h"
#include "spec/protocol/request.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace entrodraft::launch {

// Returns the counts of a run or a text, and figures made of them, by the names of the output format.
Json counts_json(const spec::Stats& stats);

// Returns the seconds of each phase, by name, that `decoding` seconds were spent on, and "other".
std::vector<std::pair<const char*, double>> phase_seconds(const spec::StepSeconds& steps, double decoding);

// Returns the line of a served request, without newline. error_line() is for a failed one.
std::string result_line(const spec::Request& request, const spec::Completion& completion);
// Returns the line of a round, for --trace.
std::string trace_line(const spec::Request& request, const spec::RoundTrace& trace);
std::string error_line(const BadLine& bad);

enum class Existing {
    refuse,
    resume, // the file holds our lines
    append, // the file may hold anything
};

class ResultWriter {
  public:
    // "-" is stdout. A file that is not empty is refused (BadOption) or resumed: a torn last line is cut off, and the
    // whole lines are counted. For a named pipe, waits until it has a reader, or a signal ends the run
    // (OrderlyFailure). Throws std::runtime_error naming file and reason.
    // `option` is the option that names the file. The destructor removes a file that this object has made, if it is
    // still empty and keep() was not called.
    ResultWriter(const std::string& file, Existing existing, const std::string& option = "--output");
    ~ResultWriter();
    ResultWriter(const ResultWriter&) = delete;
    ResultWriter& operator=(const ResultWriter&) = delete;

    // Hashes of the ids of the lines in a resumed file, in order.
    const std::vector<std::uint64_t>& served() const { return served_; }
    std::int64_t served_with_error() const { return served_with_error_; }
    // Returns the number of items that the output has, including those of a resumed file.
    std::int64_t written() const { return next_; }

    // Writes `line` once all items before number `order` (from 0) are written. Throws std::runtime_error.
    void put(std::int64_t order, const std::string& line);
    // Sets a function that is called before each line that put() writes.
    void before_each_line(std::function<void()> step) { before_line_ = std::move(step); }
    // Writes text as it is. Throws std::runtime_error, also if the file was removed or cut.
    void write_text(std::string_view text);
    // Throws std::runtime_error if the file no longer holds what was written to it.
    void require_intact() const;
    void keep() { is_new_ = false; }
    bool is_plain_file() const { return has_name_; } // --resume can go on with such a file
    // Keeps the first `bytes` of a plain file. Throws std::runtime_error.
    void cut_to(std::uint64_t bytes);

  private:
    void read_existing();
    bool is_left_empty() const;

    std::string file_;
    int descriptor_ = -1;
    bool is_new_ = false;              // this object has made the file, and keep() was not called
    bool has_name_ = false;            // a plain file that a directory names
    std::uint64_t expected_bytes_ = 0; // size of a plain file
    std::vector<std::uint64_t> served_;
    std::int64_t served_with_error_ = 0;
    std::int64_t next_ = 0;
    std::map<std::int64_t, std::string> waiting_;
    std::function<void()> before_line_;
};

// Skips the items of `reader` that were in a resumed file, and checks that they are the same: by their ids, and by the
// `known` hashes of their lines. Returns the hashes of their lines. Throws std::runtime_error naming the first item
// that differs.
std::vector<std::uint64_t> skip_served(RequestReader& reader, const ResultWriter& writer, const std::string& output,
                                       const std::vector<std::uint64_t>& known = {});

// Writes text to stdout, on the writer only. Throws std::runtime_error if it cannot be written.
void print(dist::Session& session, std::string_view text);

} // namespace entrodraft::launch
