// Between a replica's engine and the dispatcher: remembers what is under way, has texts decoded once more for --check,
// makes the lines of results, and counts.
//
// One for each replica, on its coordinator. Several requests may be under way, and come back in any order.
#pragma once

#include "dist/clock.h"
#include "dist/comm/channel.h"
#include "launch/serve/dispatcher.h"
#include "launch/serve/messages.h"
#include "spec/engine.h"

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace entrodraft::launch {

// How long a coordinator without work waits for some before it tells its other ranks that there is none yet: far less
// than they wait, and little enough that a signal to any rank ends the wait within the half second that SIGTERM leaves.
double idle_wait_seconds(double collective_timeout_seconds);

class RequestTracker {
  public:
    // `dispatcher` is null but on the writer, where it is used in place of `channel`. All outlive this.
    RequestTracker(Dispatcher* dispatcher, dist::Channel* channel, const GenerateOptions& options,
                   const dist::Clock& clock);

    // For the engine of this replica; this outlives them. They throw what the dispatcher and the channel throw.
    spec::EngineCallbacks callbacks();
    // The end of this replica's run. Returns once those of all replicas have ended. Throws as above. Local.
    void close(bool interrupted);

  private:
    // Whether the text is the same whatever is drafted.
    bool is_checkable(const spec::Request& request) const;
    bool is_idle() const { return orders_.empty() && unchecked_.empty(); }
    std::optional<spec::Request> next_request();
    void on_complete(const spec::Request& request, spec::Completion completion);
    void compare(const spec::Request& request, const spec::Completion& plain);
    void send(Report report);
    void receive(double wait_seconds);

    Dispatcher* dispatcher_;
    dist::Channel* channel_;
    const GenerateOptions* options_;
    const dist::Clock* clock_;
    RunState state_ = RunState::serving;
    std::deque<Assignment> assigned_;                             // not begun
    std::map<std::string, std::int64_t> orders_;                  // by id: under way, drafted
    std::deque<spec::Request> to_replay_;                         // completed, to be decoded again without drafting
    std::map<std::string, std::vector<spec::TokenId>> unchecked_; // by id: their tokens, until the replay has ended
    Tally tally_;
    double busy_since_ = 0; // unless idle
};

} // namespace entrodraft::launch
