// Decodes sequences on a replica: admission, prefill, rounds and retirement, until no request is left.
//
// Every rank of the replica makes an Engine and calls run(). Only the coordinator's engine has requests, a drafter and
// a tokenizer. The round packet alone tells each rank what to do next (see round.h).
#pragma once

#include "spec/round/engine_parts.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace entrodraft::spec {

// A failure inside a round. what() is the reason; round() and step() say where. The other ranks may be waiting, so the
// code that catches it must print it and abort the job.
class RoundError final : public std::runtime_error {
  public:
    RoundError(const std::string& reason, std::uint64_t round, std::string step)
        : std::runtime_error(reason), round_(round), step_(std::move(step)) {}
    std::uint64_t round() const { return round_; }
    const std::string& step() const { return step_; } // such as "draft", "broadcast", "prefill", "score", "gather"

  private:
    std::uint64_t round_;
    std::string step_;
};

enum class RunEnd { finished, interrupted };

class Engine {
  public:
    Engine(const EngineOptions& options, const EngineParts& parts);
    ~Engine();

    // Serves requests until there are none, or until `stop_signal` (set by a signal handler on any rank) is
    // seen in a status word. Then all ranks stop after the same round, and unfinished sequences are dropped.
    // Throws RoundError, and on the coordinator anything that a callback throws. Collective over the replica.
    RunEnd run(const EngineCallbacks& callbacks, const volatile int& stop_signal);

    // The run's knowledge of drafting, if the rule weighs costs. Coordinator only.
    DraftWorth draft_worth() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace entrodraft::spec
