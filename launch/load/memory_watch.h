// How far this process's own memory (RssAnon + RssShmem of /proc/self/status) rises while the object lives: a thread
// looks about every millisecond. Mapped files do not count. Called by bench load.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace entrodraft::launch {

// Throws std::runtime_error where the system does not say. Local.
std::uint64_t own_memory_bytes();

class MemoryWatch {
  public:
    MemoryWatch();
    ~MemoryWatch() { stop(); }
    MemoryWatch(const MemoryWatch&) = delete;
    MemoryWatch& operator=(const MemoryWatch&) = delete;

    // A last look, and the end of looking.
    void stop();
    std::uint64_t before_bytes() const { return before_; }
    std::uint64_t peak_bytes() const { return peak_; } // after stop()

  private:
    void look();

    std::uint64_t before_;
    std::atomic<std::uint64_t> peak_;
    std::atomic<bool> ended_{false};
    std::thread watcher_;
};

} // namespace entrodraft::launch
