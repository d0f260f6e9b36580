// A step watch learns what a rank does: the step that the rank is about to do, and the round of that step.
//
// The session's watchdog is one: it shows the step to the other ranks, and limits the time that the step may take.
// Tests of failures have others: these kill, stop, throw or sleep at a chosen step. The round and launch call it.
#pragma once

#include <cstdint>

namespace entrodraft::dist {

// Between two rounds the coordinator reads and writes files and pipes, which may take as long as people take. This is
// the only step without a deadline of its own.
inline constexpr const char* kOutputStep = "output";

// The round of a step that belongs to none: starting, loading, leaving.
inline constexpr std::uint64_t kNoRound = UINT64_MAX;

class StepWatch {
  public:
    virtual ~StepWatch() = default;
    // This rank begins `step`, a string literal, of `round` (kNoRound outside rounds). May throw an error that ends the
    // round. Local; called several times a round, at some ten nanoseconds a call.
    virtual void enter(std::uint64_t round, const char* step) = 0;
};

} // namespace entrodraft::dist
