// Ranks as cooperative tasks in simulated time: one thread runs one task at a time, always the one that wakes first. A
// seed decides ties, so the seed alone determines a run. Knows nothing of ranks, messages or the product. For the
// simulation of the protocol only.
#pragma once

#include <cxxabi.h>
#include <ucontext.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

namespace entrodraft {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Numbers from one seed, the same on every machine (Steele et al. 2014, SplitMix64).
class Dice {
  public:
    explicit Dice(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }
    double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
    int between(int least, int most) { return least + below(most - least + 1); }
    bool chance(double probability) { return uniform() < probability; }
    template <typename T> const T& one_of(const std::vector<T>& all) {
        return all[static_cast<std::size_t>(below(static_cast<int>(all.size())))];
    }

  private:
    std::uint64_t state_;
};

// Thrown into every task if none can ever wake, or if they run without end. It is not a std::exception, so that the
// product does not take it for its own error.
struct Hang {};

// The stacks of tasks, kept from one simulation to the next.
class TaskStacks {
  public:
    static constexpr std::size_t kBytes = std::size_t{1} << 20;
    std::byte* stack(std::size_t task) {
        while (stacks_.size() <= task)
            stacks_.push_back(std::make_unique_for_overwrite<std::byte[]>(kBytes));
        return stacks_[task].get();
    }

  private:
    std::vector<std::unique_ptr<std::byte[]>> stacks_;
};

class Tasks {
  public:
    Tasks(TaskStacks& stacks, std::uint64_t seed) : stacks_(stacks), dice_(seed) {}

    // Tasks are numbered from 0. No exception may leave `body`.
    void add(std::function<void()> body) {
        tasks_.push_back(std::make_unique<Task>());
        tasks_.back()->body = std::move(body);
    }
    // Runs until all tasks have ended.
    void run() {
        for (std::size_t i = 0; i < tasks_.size(); ++i)
            prepare(i);
        go_on();
    }

    double now() const { return now_; }
    std::uint64_t switches() const { return switches_; }
    bool hung() const { return hung_; }

    // The calling task goes on at `time`, or earlier if another task wakes it.
    void pause_until(double time) {
        tasks_[current_]->wake = std::max(time, now_);
        go_on();
        if (hung_) throw Hang();
    }
    // A paused task goes on at `time` at the latest.
    void wake(int task, double time) {
        double& at = tasks_[static_cast<std::size_t>(task)]->wake;
        at = std::min(at, std::max(time, now_));
    }

  private:
    // The C++ runtime's state of a thread's exceptions: each task has its own.
    struct Exceptions {
        void* caught = nullptr;
        unsigned uncaught = 0;
    };
    struct Task {
        std::function<void()> body;
        ucontext_t context = {};
        Exceptions exceptions;
        double wake = 0;
        bool ended = false;
    };
    static constexpr std::size_t kMain = static_cast<std::size_t>(-1);
    static constexpr std::uint64_t kMaxSwitches = 2'000'000;

    void prepare(std::size_t number) {
        Task& task = *tasks_[number];
        getcontext(&task.context);
        task.context.uc_stack.ss_sp = stacks_.stack(number);
        task.context.uc_stack.ss_size = TaskStacks::kBytes;
        const auto self = reinterpret_cast<std::uintptr_t>(this);
        makecontext(&task.context, reinterpret_cast<void (*)()>(&Tasks::enter), 2, static_cast<unsigned>(self >> 32),
                    static_cast<unsigned>(self));
    }

    static void enter(unsigned high, unsigned low) {
        auto* self = reinterpret_cast<Tasks*>(static_cast<std::uintptr_t>(high) << 32 | low);
        self->arrived(nullptr);
        Task& task = *self->tasks_[self->current_];
        task.body();
        task.ended = true;
        self->go_on();
    }

    // Runs the task that wakes first; returns to run() if there is none.
    void go_on() {
        const std::size_t next = choose();
        if (next == current_) return;
        ++switches_;
        const std::size_t from = current_;
        Exceptions& kept = from == kMain ? main_exceptions_ : tasks_[from]->exceptions;
        Exceptions& other = next == kMain ? main_exceptions_ : tasks_[next]->exceptions;
        std::memcpy(static_cast<void*>(&kept), static_cast<void*>(abi::__cxa_get_globals()), sizeof kept);
        std::memcpy(static_cast<void*>(abi::__cxa_get_globals()), &other, sizeof other);
        current_ = next;
        leave_for(from, next);
    }

    std::size_t choose() {
        std::size_t best = kMain;
        int equals = 1;
        for (std::size_t i = 0; i < tasks_.size(); ++i) {
            if (tasks_[i]->ended) continue;
            if (best == kMain || tasks_[i]->wake < tasks_[best]->wake) {
                best = i;
                equals = 1;
            } else if (tasks_[i]->wake == tasks_[best]->wake && dice_.below(++equals) == 0) {
                best = i;
            }
        }
        if (best == kMain) return best;
        if (tasks_[best]->wake == kNever || switches_ > kMaxSwitches) hung_ = true;
        if (!hung_) now_ = std::max(now_, tasks_[best]->wake);
        return best;
    }

#if defined(__SANITIZE_ADDRESS__)
    void leave_for(std::size_t from, std::size_t next) {
        void* fake_stack = nullptr;
        const bool ends = from != kMain && tasks_[from]->ended;
        const void* bottom = next == kMain ? main_bottom_ : stacks_.stack(next);
        __sanitizer_start_switch_fiber(ends ? nullptr : &fake_stack, bottom,
                                       next == kMain ? main_bytes_ : TaskStacks::kBytes);
        switch_context(from, next);
        arrived(fake_stack);
    }
    void arrived(void* fake_stack) {
        const void* bottom = nullptr;
        std::size_t bytes = 0;
        __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
        if (main_bottom_ == nullptr) { // the first switch comes from the main stack
            main_bottom_ = bottom;
            main_bytes_ = bytes;
        }
    }
    const void* main_bottom_ = nullptr;
    std::size_t main_bytes_ = 0;
#else
    void leave_for(std::size_t from, std::size_t next) {
        switch_context(from, next);
    }
    void arrived(void*) {}
#endif

    void switch_context(std::size_t from, std::size_t next) {
        swapcontext(from == kMain ? &main_ : &tasks_[from]->context, next == kMain ? &main_ : &tasks_[next]->context);
    }

    TaskStacks& stacks_;
    Dice dice_;
    std::vector<std::unique_ptr<Task>> tasks_;
    ucontext_t main_ = {};
    Exceptions main_exceptions_;
    std::size_t current_ = kMain;
    double now_ = 0;
    std::uint64_t switches_ = 0;
    bool hung_ = false;
};

} // namespace entrodraft
