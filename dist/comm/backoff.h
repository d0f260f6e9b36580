// A rank that waits first spins, then yields the core, then sleeps. So it sees a quick answer at once, and ranks that
// share a core still make progress. Every wait with a deadline in this module uses Backoff.
#pragma once

#include "dist/comm/futex.h"
#include "dist/rank/clock.h"

#include <algorithm>
#include <sched.h>

namespace entrodraft::dist {

// Tells the core that this is a spin loop.
inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class Backoff {
  public:
    static constexpr int kSpins = 2000;      // 50 to 120 us, by processor: longer than any rank of a pass lags
    static constexpr int kCrowdedSpins = 50; // where ranks share cores, the awaited one may need this very core
    static constexpr std::chrono::milliseconds kPatience{1};
    static constexpr std::chrono::milliseconds kLongestSleep{100}; // the cost of a wake-up that never comes, at most
    static constexpr std::chrono::milliseconds kPassPatience{200}; // a pass on a GPU: a nap would be seen in its time

    // The wait sleeps between looks once `patience` has passed.
    explicit Backoff(Deadline deadline, int spins = kSpins, std::chrono::milliseconds patience = kPatience)
        : deadline_(deadline), spins_left_(spins), patience_(patience) {}

    // Waits a little, longer with each call. Returns false once the deadline has passed. Reads the clock seldom.
    bool step() {
        return step([](std::chrono::nanoseconds) { nap(); });
    }

    // The same, but sleeps by calling `sleep` with the longest time that it may take, instead of by nap().
    template <typename Sleep> bool step(const Sleep& sleep) {
        if (spins_left_ > 0) {
            --spins_left_;
            pause_core();
            return true;
        }
        if (slow_steps_++ % kStepsPerClockRead == 0 || sleeps_) {
            const auto now = std::chrono::steady_clock::now();
            if (slow_steps_ == 1) began_ = now;
            if (now >= deadline_.at) return false;
            sleeps_ = now - began_ > patience_;
            left_ = deadline_.at - now;
        }
        if (sleeps_)
            sleep(std::min<std::chrono::nanoseconds>(left_, kLongestSleep));
        else
            sched_yield();
        return true;
    }

    double waited_seconds() const {
        if (slow_steps_ == 0) return 0;
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    }

  private:
    static constexpr unsigned kStepsPerClockRead = 16;
    Deadline deadline_;
    int spins_left_;
    std::chrono::milliseconds patience_;
    unsigned slow_steps_ = 0;
    bool sleeps_ = false;
    std::chrono::steady_clock::time_point began_;
    std::chrono::nanoseconds left_{}; // until the deadline
};

} // namespace entrodraft::dist
