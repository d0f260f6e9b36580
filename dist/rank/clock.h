// The time that rounds use: one monotonic clock, and the deadlines that are made from it.
//
// Code that measures or waits is given a Clock, so that tests can give it one that they set by hand.
#pragma once

#include <chrono>

namespace entrodraft::dist {

// A point on the monotonic clock after which a wait gives up.
struct Deadline {
    std::chrono::steady_clock::time_point at;

    static Deadline after_seconds(double seconds);
    bool passed() const { return std::chrono::steady_clock::now() >= at; }
};

class Clock {
  public:
    virtual ~Clock() = default;
    // Returns seconds since an arbitrary start. They never go back.
    virtual double now_seconds() const = 0;
};

// std::chrono::steady_clock.
class SteadyClock final : public Clock {
  public:
    double now_seconds() const override;
};

} // namespace entrodraft::dist
