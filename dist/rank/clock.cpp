// The monotonic clock of Deadline and SteadyClock.
#include "dist/rank/clock.h"

namespace entrodraft::dist {

Deadline Deadline::after_seconds(double seconds) {
    using Time = std::chrono::steady_clock::time_point;
    constexpr double kForeverSeconds = 1e9; // some thirty years; more than that counts as never
    if (!(seconds < kForeverSeconds)) return {Time::max()};
    const auto wait = std::chrono::duration<double>(seconds);
    return {std::chrono::steady_clock::now() + std::chrono::duration_cast<Time::duration>(wait)};
}

double SteadyClock::now_seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace entrodraft::dist
