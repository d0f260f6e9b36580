// Records when every rank began each step of each round, in a file for trace viewers (Perfetto, chrome://tracing). The
// engine reports its steps to the timeline, which forwards each report to the session's own StepWatch. Called by
// generate --timeline.
#pragma once

#include "dist/layout/layout.h"
#include "dist/rank/clock.h"
#include "dist/rank/step_watch.h"
#include "dist/session/session.h"

#include <cstddef>
#include <string>
#include <vector>

namespace entrodraft::launch {

class Timeline final : public dist::StepWatch {
  public:
    // Number of steps that are kept of a rank; later steps are not kept.
    static constexpr std::size_t kMaxSteps = 2'000'000;

    // At the end of this call, the ranks' clocks agree up to the time of a message. All arguments outlive this object.
    // Collective over the world.
    Timeline(dist::Session& session, const dist::Clock& clock);

    void enter(std::uint64_t round, const char* step) override;

    // Returns {"traceEvents": [..]} of all ranks, in microseconds: a process for each replica, a thread for each rank,
    // and `args.round`. On the writer; empty elsewhere. Collective over the world.
    std::string gather(const dist::RankLayout& layout);

  private:
    struct Step {
        double seconds;
        std::uint64_t round;
        const char* name;
    };

    std::string events_of(const dist::RankLayout& layout) const;

    dist::Session& session_;
    const dist::Clock& clock_;
    double begin_seconds_ = 0;
    std::vector<Step> steps_;
};

} // namespace entrodraft::launch
