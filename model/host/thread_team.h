// A fixed team of threads that computes passes together: one run() a pass, with cheap barriers inside it.
//
// The caller is thread 0. A thread that waits spins for a short while, then sleeps. So a team that waits for the
// network leaves its cores idle. And if other work has taken the core of one thread, the system can give it the core of
// a thread that waits for it. Not a task scheduler.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace entrodraft::model {

class ThreadTeam {
  public:
    // Throws std::invalid_argument below one thread, std::system_error where none can be started.
    explicit ThreadTeam(int n_threads);
    ~ThreadTeam();
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;

    int size() const { return n_threads_; }

    // Calls work(thread) once on every thread of the team and returns when all are done. `work` must not throw.
    template <typename Work> void run(Work&& work) {
        if (n_threads_ == 1) return work(0);
        using Target = std::remove_reference_t<Work>;
        auto call = [](void* context, int thread) { (*static_cast<Target*>(context))(thread); };
        run_all(call, const_cast<void*>(static_cast<const void*>(&work)));
    }

    // All threads of the team reach this point before any goes on. Only inside run().
    void barrier(int thread);

  private:
    using Call = void (*)(void* context, int thread);
    // One cache line a thread: how many runs it has finished and how many barriers it has reached.
    struct alignas(64) Progress {
        std::atomic<std::uint32_t> runs{0};
        std::atomic<std::uint32_t> barriers{0};
    };

    void run_all(Call call, void* context);
    void serve(int thread);
    template <typename Reached> void wait_until(const Reached& reached);
    void wake_sleepers();
    void stop();

    int n_threads_;
    Call call_ = nullptr;
    void* context_ = nullptr;
    std::vector<Progress> progress_;
    alignas(64) std::atomic<std::uint32_t> run_number_{0};
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> threads_;
};

} // namespace entrodraft::model
