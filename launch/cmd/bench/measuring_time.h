// Limits a measurement to a number of seconds. It logs the limit at the beginning and shows the remaining time. Called
// by record, tune, bench compare and bench latency.
#pragma once

#include "dist/rank/clock.h"
#include "dist/session/session.h"
#include "launch/io/progress.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace entrodraft::launch {

// True while less than this share of the time is spent. Asked before each measurement.
using HasTime = std::function<bool(double share)>;
constexpr double kInAnyCase = std::numeric_limits<double>::infinity(); // a share that is never used up

class MeasuringTime {
  public:
    // `what` is measured: "what passes cost". Unless `quiet`, the writer logs it with the limit. 0: there is no limit.
    MeasuringTime(dist::Session& session, std::string what, double limit_seconds, bool quiet);

    // Decides by the writer's clock, the same on all ranks. Collective over the world.
    bool has_left(double share = 1);

  private:
    dist::Session& session_;
    std::string what_;
    double limit_seconds_;
    dist::SteadyClock clock_;
    double begin_;
    StatusLine status_;
};

// Returns the HasTime of one rank alone, which logs nothing. 0: there is no limit.
HasTime time_of_this_rank(double limit_seconds);

// Returns 0, 1, ..., count - 1 in an order that covers the range evenly, wherever one stops: the first, the last, then
// always the middle of a gap.
std::vector<int> coarse_to_fine(int count);

} // namespace entrodraft::launch
