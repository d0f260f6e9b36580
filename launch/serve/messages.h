// Messages between the dispatcher and the request trackers of replicas, and their form as bytes. All ranks of a job are
// the same build, so numbers are sent as they are in memory.
#pragma once

#include "spec/protocol/request.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::launch {

// A request tracker sends this to the dispatcher as events happen.
struct Report {
    std::string result = {};                           // a line of the output, without newline; empty: none
    std::int64_t order = 0;                            // order of the result in the output, as it was assigned
    int sample = 0;                                    // number of the sample that `text` belongs to
    std::optional<spec::Stats> stats = std::nullopt;   // of the result, if it is a text
    bool checked = false;                              // the text was decoded once more; `note`: it differs
    bool ends_request = false;                         // no more results come for it
    std::string text = {};                             // a piece of text of a request that streams
    std::vector<spec::TokenLogProbs> logprobs = {};    // of the tokens whose text begins in `text`
    std::string trace = {};                            // a line of --trace
    std::string note = {};                             // a line for people
    std::optional<double> busy_seconds = std::nullopt; // total time with a text in progress; in the last report
    bool interrupted = false;                          // a signal ended the replica's run
};

enum class RunState {
    serving,
    finished,    // all requests are served
    interrupted, // a replica has seen a signal
    closed,      // the last reports of all replicas have come
};

// The dispatcher sends this to a request tracker: a request, a change of state, or the end of a request that nobody
// waits for any more.
struct Assignment {
    RunState state = RunState::serving;
    std::int64_t order = 0; // order of the request's result in the output
    std::optional<spec::Request> request = std::nullopt;
    bool cancels = false; // the request of this order, if this replica has it
};

// For Report and Assignment. Bytes must be unpacked as the type that was packed: else std::runtime_error.
template <typename T> std::vector<std::byte> pack(T message);
template <typename T> T unpack(std::vector<std::byte> bytes);

} // namespace entrodraft::launch
