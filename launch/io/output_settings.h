// OUTPUT.settings has the settings that determine the texts in generate's OUTPUT. With them, --resume does not put
// texts of two different runs into one file.
//
// The first line has the settings. Each later line is a hash of an input line: the one whose result is the next line of
// OUTPUT. A hash is written just before its result. So a run that dies leaves at most one hash too many, and the next
// run drops it. Called by the dispatcher, on the writer.
#pragma once

#include "launch/io/json_line.h"
#include "launch/io/results.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

// The rules of a resumed run.
struct ResumeRules {
    bool anyway = false; // --resume-anyway: settings and lines may have changed
    bool quiet = false;  // no warnings
};

class OutputSettings {
  public:
    // Throws std::runtime_error if the file could not be written next to `output`.
    explicit OutputSettings(const std::string& output);

    const std::string& file() const { return file_; }
    // Takes the settings of this run, before its first line. If the output holds `n_served` lines of an earlier run,
    // these must be that run's settings: throws BadOption that names each setting that differs, with both values. Warns
    // if there is no file, or if it knows fewer lines. Throws std::runtime_error if the file is not ours. Returns the
    // known hashes of the served lines.
    std::vector<std::uint64_t> compare(const Json& settings, std::size_t n_served, const ResumeRules& rules);
    // Writes the file with the settings of compare() and the hashes of the served lines. Throws std::runtime_error.
    void begin(std::span<const std::uint64_t> served);
    // Adds the hash of the next input line that will have a line in the output.
    void expect(std::uint64_t line_hash) { expected_.push_back(line_hash); }
    // Must run before the next line of the output is written. Throws std::runtime_error.
    void write_next();

  private:
    struct Earlier {
        Json version, settings;
        std::vector<std::uint64_t> lines;
    };
    std::optional<Earlier> read_earlier() const;

    std::string output_, file_;
    Json settings_;
    std::deque<std::uint64_t> expected_;
    std::optional<ResultWriter> appended_;
};

} // namespace entrodraft::launch
