// OUTPUT.settings: what makes the texts of generate's OUTPUT, so that --resume does not put texts of two different runs
// into one file.
//
// The first line holds the settings, each later line a hash of the input line whose result is the next line of the
// output. A hash is written just before its result: after a death there is at most one too many, and the next run drops
// it. Called by the dispatcher, on the writer.
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
    // Throws std::runtime_error where the file could not be written beside `output`.
    explicit OutputSettings(const std::string& output);

    const std::string& file() const { return file_; }
    // The settings of this run, before its first line. Where the output holds `n_served` lines of an earlier run, these
    // have to be its settings: throws BadOption that names each one that differs, with both values. Returns the hashes
    // of the lines served that are known. Where there is no file, or it knows fewer lines, it warns. Throws
    // std::runtime_error where the file is none of ours.
    std::vector<std::uint64_t> compare(const Json& settings, std::size_t n_served, const ResumeRules& rules);
    // Writes the file with the settings of compare() and the hashes of the lines served. Throws std::runtime_error.
    void begin(std::span<const std::uint64_t> served);
    // The hash of the next input line that will have a line in the output.
    void expect(std::uint64_t line_hash) { expected_.push_back(line_hash); }
    // Before the next line of the output is written. Throws std::runtime_error.
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
