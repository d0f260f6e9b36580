// The heartbeat's thread: see watchdog.h.
#include "dist/rank/watchdog.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>

namespace entrodraft::dist {
namespace {

constexpr std::chrono::milliseconds kBeat{200};

// Starts a thread that signals do not interrupt: handlers run on the threads that wait for input.
std::thread start_without_signals(const std::function<void()>& work) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread(work);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

} // namespace

Watchdog::Watchdog(RankBoard& board, OnStuck on_stuck) : board_(board), on_stuck_(std::move(on_stuck)) {
    board_.beat();
    thread_ = start_without_signals([this] { beat_until_told(); });
}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    told_.notify_one();
    thread_.join();
}

void Watchdog::bound_steps(double seconds) {
    const std::lock_guard lock(mutex_);
    limit_seconds_ = seconds;
    seconds_ = 0;
}

void Watchdog::beat_until_told() {
    std::unique_lock lock(mutex_);
    while (!told_.wait_for(lock, kBeat, [this] { return ends_; })) {
        board_.beat();
        if (!is_stuck()) continue;
        char reason[160];
        std::snprintf(reason, sizeof reason,
                      "this step has not ended for %.1f s: the rank is stuck, or --collective-timeout is too short",
                      seconds_);
        limit_seconds_ = 0;
        lock.unlock();
        on_stuck_(reason);
        lock.lock();
    }
}

// The time of one beat is added to the step in which the last beat found the rank.
bool Watchdog::is_stuck() {
    const std::uint64_t moves = board_.moves();
    const bool hangs = moves == moves_ && !board_.is_waiting() && !board_.is_in(kOutputStep);
    moves_ = moves;
    seconds_ = hangs ? seconds_ + std::chrono::duration<double>(kBeat).count() : 0;
    return on_stuck_ && limit_seconds_ > 0 && seconds_ > limit_seconds_;
}

} // namespace entrodraft::dist
