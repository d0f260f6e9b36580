// A thread beside a rank's own: it renews the heartbeat, and notices a step that does not end.
//
// A wait for other ranks has its own deadline, so a rank that waits is never stuck in this sense, and neither is one
// that hands out results (kOutputStep). Time counts only while this process runs: one that was stopped and goes on is
// not stuck. Made by Session.
#pragma once

#include "dist/rank/rank_board.h"

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace entrodraft::dist {

class Watchdog {
  public:
    // Called once, on the watchdog's thread, with the reason; it is to end the process, since the rank's own thread
    // cannot.
    using OnStuck = std::function<void(const std::string& reason)>;

    // Begins to beat. All signals stay with the other threads. `board` outlives it.
    explicit Watchdog(RankBoard& board, OnStuck on_stuck = {});
    ~Watchdog(); // ends the thread
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    // From now on a step of this rank may take so long; 0: as long as it likes.
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
    std::uint64_t moves_ = 0; // of the board, when last seen
    double seconds_ = 0;      // in the step since then, as far as this process ran
    std::thread thread_;
};

} // namespace entrodraft::dist
