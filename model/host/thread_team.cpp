// Hands work to the team: by a run number that workers watch, and progress counters on a cache line a thread.
#include "model/host/thread_team.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::model {

namespace {

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

constexpr int kLooksWithoutPause = 64;
constexpr int kMostSpins = 8192; // some 0.2 ms
constexpr int kLeastSpins = 128;

// The spins before this thread sleeps: fewer after it had to sleep, for where threads share a core a spin keeps the one
// that is waited for from running; more after a wait that was short.
int& spins_before_sleep() {
    thread_local int spins = kMostSpins;
    return spins;
}

} // namespace

ThreadTeam::ThreadTeam(int n_threads)
    : n_threads_(n_threads), progress_(static_cast<std::size_t>(n_threads < 1 ? 1 : n_threads)) {
    if (n_threads < 1) throw std::invalid_argument("a thread team needs at least one thread");
    try {
        for (int thread = 1; thread < n_threads; ++thread)
            threads_.emplace_back([this, thread] { serve(thread); });
    } catch (...) {
        stop();
        throw;
    }
}

ThreadTeam::~ThreadTeam() {
    stop();
}

void ThreadTeam::stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_)
        thread.join();
    threads_.clear();
}

void ThreadTeam::run_all(Call call, void* context) {
    call_ = call;
    context_ = context;
    const std::uint32_t number = run_number_.fetch_add(1) + 1;
    wake_sleepers();
    call(context, 0);
    for (int thread = 1; thread < n_threads_; ++thread)
        wait_until([&] { return progress_[thread].runs.load() == number; });
}

// `reached` reads what another thread stores before it calls wake_sleepers().
template <typename Reached> void ThreadTeam::wait_until(const Reached& reached) {
    int& most = spins_before_sleep();
    for (int spins = 0; spins < most; ++spins) {
        if (reached()) {
            most = std::min(2 * most, kMostSpins);
            return;
        }
        if (spins >= kLooksWithoutPause) pause_briefly();
    }
    most = std::max(most / 8, kLeastSpins);
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, reached);
    sleepers_.fetch_sub(1);
}

// The stores before this and sleepers_ are sequentially consistent: either it is seen here that somebody sleeps, or who
// is about to sleep sees what was stored.
void ThreadTeam::wake_sleepers() {
    if (sleepers_.load() == 0) return;
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
}

void ThreadTeam::serve(int thread) {
    Progress& mine = progress_[thread];
    for (std::uint32_t finished = 0;;) {
        wait_until([&] { return run_number_.load() != finished || stop_; });
        if (run_number_.load(std::memory_order_acquire) == finished) return; // stopped
        call_(context_, thread);
        mine.runs.store(++finished);
        wake_sleepers();
    }
}

// Every thread posts its own count and watches the others': one cache line's journey, not two.
void ThreadTeam::barrier(int thread) {
    if (n_threads_ == 1) return;
    Progress& mine = progress_[thread];
    const std::uint32_t phase = mine.barriers.load(std::memory_order_relaxed) + 1;
    mine.barriers.store(phase);
    wake_sleepers();
    for (const Progress& other : progress_)
        wait_until([&] { return static_cast<std::int32_t>(other.barriers.load() - phase) >= 0; });
}

} // namespace entrodraft::model
