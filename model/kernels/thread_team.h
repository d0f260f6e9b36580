// A fixed team of threads that computes passes together: one run() a pass, cheap barriers inside it.
//
// The caller is thread 0. The others spin for a short while after a run, then yield, then sleep, so that a
// team that waits for the network does not burn its cores. Not a task scheduler.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace entrodraft::model {

class ThreadTeam {
  public:
    explicit ThreadTeam(int n_threads);
    ~ThreadTeam();
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;

    int size() const { return n_threads_; }

    // Calls work(thread) once on every thread of the team and returns when all are done. `work` must not throw.
    template <typename Work> void run(Work&& work) {
        if (n_threads_ == 1) {
            work(0);
            return;
        }
        auto call = [](void* context, int thread) { (*static_cast<std::remove_reference_t<Work>*>(context))(thread); };
        run_all(call, &work);
    }

    // All threads of the team reach this point before any goes on. Only inside run().
    void barrier(int thread);

  private:
    using Call = void (*)(void* context, int thread);
    void run_all(Call call, void* context);
    void serve(int thread);

    struct alignas(64) Arrival {
        std::atomic<std::uint32_t> count{0};
    };

    int n_threads_;
    Call call_ = nullptr;
    void* context_ = nullptr;
    alignas(64) std::atomic<std::uint32_t> run_number_{0};
    alignas(64) std::atomic<std::uint32_t> barrier_phase_{0};
    alignas(64) std::atomic<std::uint32_t> waiting_{0};
    std::vector<Arrival> arrivals_;
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<int> sleepers_{0};
    std::vector<std::thread> threads_;
};

} // namespace entrodraft::model
