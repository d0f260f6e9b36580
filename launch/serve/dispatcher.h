// Hands the requests of the input out to replicas as they become free, and writes results in the order of the input.
//
// One for a run, on the writer, which also coordinates replica 0. Runs when the request tracker of that replica calls
// it, between rounds; the trackers of other replicas reach it over a channel.
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
    // How many results may wait for an earlier one, for each text that can be under way: then nothing is handed out
    // until that one is written. Bounds what a death loses, and memory.
    static constexpr std::int64_t kMaxResultsAhead = 256;

    // Opens the files; before the models, so that a mistake there does not cost the loading of them. Those that it
    // makes go with it again unless it comes to start(). Throws BadOption, std::runtime_error.
    explicit Dispatcher(const GenerateOptions& options);
    // Reads the prompt, or passes over what an earlier run served, with the same `settings` of text. Throws as above.
    void read_first(const PromptLimits& limits, const Json& settings = Json::object());
    // `channel` leads to the other replicas, null where there are none, and outlives this.
    void start(dist::Channel* channel);

    // Takes a replica's report. Throws std::runtime_error where a file cannot be written.
    void handle(int replica, const Report& report);
    // Takes reports, reads the input and hands out. The next assignment of replica 0; none when there is none within
    // `wait_seconds`. Throws as above, and dist::Timeout.
    std::optional<Assignment> receive(double wait_seconds);
    // The end of the run: counts of all replicas. Throws std::runtime_error where the files have lost what was written
    // to them.
    RunSummary finish();
    // True where a request so far, also of the lines found served, has a temperature above 0.
    bool any_samples() const { return reader_ ? reader_->any_samples() : !options_->requests.sampling.greedy(); }
    std::int64_t resumed_with_error() const { return writer_.served_with_error(); } // of the lines found served

    void write_timeline(std::string_view text); // all of --timeline
    void print(const std::string& text);        // for people

  private:
    struct Replica {
        std::int64_t under_way = 0; // requests assigned to it that it has not done with
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
    std::optional<OutputSettings> settings_;  // of an output that --resume can go on with
    std::vector<std::uint64_t> served_lines_; // hashes of the lines found served
    Progress progress_;
    dist::Channel* channel_ = nullptr;
    std::vector<Replica> replicas_;
    RunState state_ = RunState::serving;
    bool input_ended_ = false;
    std::int64_t next_order_ = 0;
    std::deque<Assignment> ready_;  // read, not handed out
    std::deque<Assignment> to_own_; // for replica 0
    RunSummary summary_;
};

} // namespace entrodraft::launch
