// Connects a replica's engine with the dispatcher. It remembers requests in progress, has texts decoded a second time
// for --check, and makes the lines of results. Each replica has one, on its coordinator. Several requests may be in
// progress, and they finish in any order.
#pragma once

#include "dist/comm/channel.h"
#include "dist/rank/clock.h"
#include "launch/cli/options.h"
#include "launch/io/results.h"
#include "launch/serve/dispatcher.h"
#include "launch/serve/messages.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

class RequestTracker {
  public:
    // Makes the result of a request that has been served.
    using ResultOf = std::function<std::string(const spec::Request&, const spec::Completion&)>;
    // `dispatcher` is used in place of `channel` on the writer, and null elsewhere. All that is pointed to outlives
    // this object.
    RequestTracker(Dispatcher* dispatcher, dist::Channel* channel, const GenerateOptions& options,
                   const dist::Clock& clock, ResultOf result_of = result_line);

    // For the engine of this replica; this object outlives them. They throw what the dispatcher and the channel throw.
    spec::EngineCallbacks callbacks();
    // Ends this replica's run. Returns once the runs of all replicas have ended. Throws as above.
    void close(bool interrupted);

  private:
    struct UnderWay {
        std::int64_t order;
        std::vector<spec::TokenId> drafted;    // tokens of the text while it is decoded again
        std::vector<spec::Completion> samples; // samples that have come, by number
        int n_open = 1;                        // samples that have not come
        double begun = 0;
        bool is_cancelled = false;
    };

    // Returns whether the text is the same whatever is drafted.
    bool is_checkable(const spec::Request& request) const;
    std::optional<spec::Request> next_request();
    void on_complete(const spec::Request& request, spec::Completion completed);
    void cancel(std::int64_t order);
    std::optional<spec::Completion> all_samples(UnderWay& line, const spec::Request& request,
                                                spec::Completion completion);
    void send(Report report);
    void receive(double wait_seconds);

    Dispatcher* dispatcher_;
    dist::Channel* channel_;
    const GenerateOptions* options_;
    const dist::Clock* clock_;
    ResultOf result_of_;
    RunState state_ = RunState::serving;
    std::deque<Assignment> assigned_;           // not begun; texts to decode again without drafting come first
    std::map<std::string, UnderWay> under_way_; // by id
    double busy_seconds_ = 0;                   // time with a text in progress, before busy_since_
    double busy_since_ = 0;                     // unless idle
};

} // namespace entrodraft::launch
