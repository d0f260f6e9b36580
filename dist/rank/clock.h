// Time as the rounds see it: one monotonic clock and the deadlines made from it.
//
// A Clock is handed to whoever measures or waits, so that tests can give a manual one.
#pragma once

#include <chrono>
#include <cstdint>

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
    // Seconds since an arbitrary start, never going back.
    virtual double now_seconds() const = 0;
};

// std::chrono::steady_clock.
class SteadyClock final : public Clock {
  public:
    double now_seconds() const override;
};

// Advances only when told to: for tests of anything that measures.
class ManualClock final : public Clock {
  public:
    double now_seconds() const override { return now_; }
    void advance(double seconds) { now_ += seconds; }

  private:
    double now_ = 0;
};

} // namespace entrodraft::dist
