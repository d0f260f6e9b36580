// Takes requests from --prompt or from the lines of --input. Results go to --output, in the order of the input.
#pragma once

#include "launch/cli/options.h"
#include "launch/io/output_settings.h"
#include "launch/io/progress.h"
#include "launch/io/requests.h"
#include "launch/io/results.h"
#include "launch/io/summary.h"
#include "launch/serve/dispatcher.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

class InputDispatcher final : public Dispatcher {
  public:
    // Number of results that may wait for an earlier one, for each text that can be in progress. At this limit, nothing
    // is handed out until the earlier result is written. It bounds memory, and what a death loses.
    static constexpr std::int64_t kMaxResultsAhead = 256;

    // Opens the files, before the models, so that a mistake there does not cost loading them. Files that it makes are
    // removed again unless start() is called. Throws BadOption, std::runtime_error.
    explicit InputDispatcher(const GenerateOptions& options);
    // Reads the prompt, or skips the lines that an earlier run served with the same `settings`. Throws as above.
    void read_first(const PromptLimits& limits, const Json& settings = Json::object());
    void start(dist::Channel* channel) override;

    // Ends the run and returns the counts of all replicas. Throws std::runtime_error if the files have lost what was
    // written to them.
    RunSummary finish();
    // Returns whether a request so far, also on the lines found served, has a temperature above 0.
    bool any_samples() const { return reader_ ? reader_->any_samples() : !options_->requests.sampling.greedy(); }
    std::int64_t resumed_with_error() const { return writer_.served_with_error(); } // errors in lines found served

    void write_timeline(std::string_view text); // the whole of --timeline
    void print(const std::string& text);        // for people

  private:
    bool streams() const { return options_->prompt.has_value(); }
    bool can_read() const override;
    void read(double wait_seconds) override;
    void take(const Report& report) override; // throws std::runtime_error if a file cannot be written
    void write(const Report& report);

    const GenerateOptions* options_;
    ResultWriter writer_;
    std::optional<ResultWriter> trace_, timeline_;
    std::optional<RequestReader> reader_;
    std::optional<OutputSettings> settings_;  // for an output that --resume can go on with
    std::vector<std::uint64_t> served_lines_; // hashes of the lines found served
    Progress progress_;
    std::int64_t next_order_ = 0;
    RunSummary summary_;
};

} // namespace entrodraft::launch
