// Who is told where a rank is: which step of which round it is about to do.
//
// The session's watchdog is one (it shows the step to the other ranks and bounds it); tests of failures are others,
// which kill, stop, throw or sleep at a step of their choice. Called by the round and by launch.
#pragma once

#include <cstdint>

namespace entrodraft::dist {

// The coordinator's dealings with files and pipes between two rounds, which may take as long as people take: the
// only step without a deadline of its own.
inline constexpr const char* kOutputStep = "output";

// The round of a step that belongs to none: starting, loading, leaving.
inline constexpr std::uint64_t kNoRound = UINT64_MAX;

class StepWatch {
  public:
    virtual ~StepWatch() = default;
    // This rank begins `step`, a string literal, of `round` (kNoRound outside rounds). May throw what ends the round.
    // Local, called several times a round: some ten nanoseconds.
    virtual void enter(std::uint64_t round, const char* step) = 0;
};

} // namespace entrodraft::dist
