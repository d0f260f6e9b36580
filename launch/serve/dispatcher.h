// Hands out the requests of the input to replicas as they become free, and writes results in the order of the input.
//
// A run has one, on the writer, which also coordinates replica 0. It runs when that replica's request tracker calls it,
// between rounds. The trackers of other replicas reach it over a channel.
#pragma once

#include "dist/comm/channel.h"
#include "launch/cli/options.h"
#include "launch/io/output_settings.h"
#include "launch/io/progress.h"
#include "launch/io/requests.h"
#include "launch/io/results.h"
#include "launch/io/summary.h"
#include "launch/serve/messages.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

class Dispatcher {
  public:
    // Number of results that may wait for an earlier one, for each text that can be in progress. At this limit, nothing
    // is handed out until the earlier result is written. It bounds memory, and what a death loses.
    static constexpr std::int64_t kMaxResultsAhead = 256;

    // Opens the files, before the models, so that a mistake there does not cost loading them. Files that it makes are
    // removed again unless start() is called. Throws BadOption, std::runtime_error.
    explicit Dispatcher(const GenerateOptions& options);
    // Reads the prompt, or skips the lines that an earlier run served with the same `settings`. Throws as above.
    void read_first(const PromptLimits& limits, const Json& settings = Json::object());
    // `channel` leads to the other replicas; null if there are none. It outlives this object.
    void start(dist::Channel* channel);

    // Takes a replica's report. Throws std::runtime_error if a file cannot be written.
    void handle(int replica, const Report& report);
    // Takes reports, reads the input and hands out requests. Returns the next assignment of replica 0, or nothing if
    // there is none within `wait_seconds`. Throws as above, and dist::Timeout.
    std::optional<Assignment> receive(double wait_seconds);
    // Ends the run and returns the counts of all replicas. Throws std::runtime_error if the files have lost what was
    // written to them.
    RunSummary finish();
    // Returns whether a request so far, also on the lines found served, has a temperature above 0.
    bool any_samples() const { return reader_ ? reader_->any_samples() : !options_->requests.sampling.greedy(); }
    std::int64_t resumed_with_error() const { return writer_.served_with_error(); } // errors in lines found served

    void write_timeline(std::string_view text); // the whole of --timeline
    void print(const std::string& text);        // for people

  private:
    struct Replica {
        std::int64_t under_way = 0; // requests assigned to it that it has not finished
        bool has_ended = false;     // its last report has come
    };

    bool streams() const { return options_->prompt.has_value(); }
    std::int64_t n_slots() const { return options_->batch_size * std::ssize(replicas_); }
    bool can_read() const;
    void read(double wait_seconds);
    void hand_out();
    void update_state();
    void send(int replica, Assignment assignment);
    void write(const Report& report);

    const GenerateOptions* options_;
    ResultWriter writer_;
    std::optional<ResultWriter> trace_, timeline_;
    std::optional<RequestReader> reader_;
    std::optional<OutputSettings> settings_;  // for an output that --resume can go on with
    std::vector<std::uint64_t> served_lines_; // hashes of the lines found served
    Progress progress_;
    dist::Channel* channel_ = nullptr;
    std::vector<Replica> replicas_;
    RunState state_ = RunState::serving;
    bool input_ended_ = false;
    std::int64_t next_order_ = 0;
    std::deque<Assignment> ready_;  // read, but not handed out
    std::deque<Assignment> to_own_; // for replica 0
    RunSummary summary_;
};

} // namespace entrodraft::launch
