// The team's hand-over: a run number that workers watch, and progress counters on a cache line a thread.
#include "model/thread_team.h"

#include <sched.h>
#include <stdexcept>

namespace entrodraft::model {

namespace {

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// One step of an escalating wait: look again at once, then pause, then give the core away.
void back_off(int spins) {
    if (spins < 64) return;
    if (spins < 8192)
        pause_briefly();
    else
        sched_yield();
}

constexpr int kSpinsBeforeSleep = 20000;

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
    const std::uint32_t number = run_number_.fetch_add(1) + 1; // sequentially consistent with sleepers_
    if (sleepers_.load() > 0) {
        const std::lock_guard lock(mutex_);
        wake_.notify_all();
    }
    call(context, 0);
    for (int thread = 1; thread < n_threads_; ++thread)
        for (int spins = 0; progress_[static_cast<std::size_t>(thread)].runs.load(std::memory_order_acquire) != number;
             ++spins)
            back_off(spins);
}

void ThreadTeam::await_run(std::uint32_t finished) {
    for (int spins = 0; spins < kSpinsBeforeSleep; ++spins) {
        if (run_number_.load(std::memory_order_acquire) != finished || stop_) return;
        back_off(spins);
    }
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, [&] { return run_number_.load() != finished || stop_; });
    sleepers_.fetch_sub(1);
}

void ThreadTeam::serve(int thread) {
    Progress& mine = progress_[static_cast<std::size_t>(thread)];
    for (std::uint32_t finished = 0;;) {
        await_run(finished);
        if (run_number_.load(std::memory_order_acquire) == finished) return; // stopped
        call_(context_, thread);
        mine.runs.store(++finished, std::memory_order_release);
    }
}

// Every thread posts its own count and watches the others': one cache line's journey, not two.
void ThreadTeam::barrier(int thread) {
    if (n_threads_ == 1) return;
    Progress& mine = progress_[static_cast<std::size_t>(thread)];
    const std::uint32_t phase = mine.barriers.load(std::memory_order_relaxed) + 1;
    mine.barriers.store(phase, std::memory_order_release);
    for (const Progress& other : progress_)
        for (int spins = 0; static_cast<std::int32_t>(other.barriers.load(std::memory_order_acquire) - phase) < 0;
             ++spins)
            back_off(spins);
}

} // namespace entrodraft::model
