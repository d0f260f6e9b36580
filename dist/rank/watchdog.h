// A thread next to a rank's own. It renews the heartbeat, and notices a step that does not end.
//
// A wait for other ranks has its own deadline, so a waiting rank never counts as stuck. A rank that hands out results
// (kOutputStep) does not count as stuck either. Only the time in which this process runs counts: a process that was
// stopped and goes on is not stuck. Session makes the watchdog.
#pragma once

#include "dist/rank/rank_board.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace entrodraft::dist {

class Watchdog {
  public:
    // Called once, on the watchdog's thread, with the reason. It must end the process, since the rank's own thread
    // cannot.
    using OnStuck = std::function<void(const std::string& reason)>;

    // Begins to beat. Only the other threads receive signals. `board` outlives the watchdog.
    explicit Watchdog(RankBoard& board, OnStuck on_stuck = {});
    ~Watchdog(); // ends the thread
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    // From now on a step of this rank may take `seconds`; 0: without a limit.
    void bound_steps(double seconds);

  private:
    void beat_until_told();
    bool is_stuck();

    RankBoard& board_;
    OnStuck on_stuck_;
    std::mutex mutex_;
    std::condition_variable told_;
    bool ends_ = false;
    double limit_seconds_ = 0;
    std::uint64_t moves_ = 0; // the board's number when last read
    double seconds_ = 0;      // in the current step, while this process ran
    std::thread thread_;
};

} // namespace entrodraft::dist
