// See memory_watch.h.
#include "launch/load/memory_watch.h"

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string>

namespace entrodraft::launch {

std::uint64_t own_memory_bytes() {
    std::ifstream status("/proc/self/status");
    std::uint64_t kibibytes = 0;
    int found = 0;
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("RssAnon:", 0) != 0 && line.rfind("RssShmem:", 0) != 0) continue;
        kibibytes += std::stoull(line.substr(line.find(':') + 1));
        ++found;
    }
    if (found != 2) throw std::runtime_error("/proc/self/status says nothing of RssAnon and RssShmem");
    return kibibytes * 1024;
}

MemoryWatch::MemoryWatch() : before_(own_memory_bytes()), peak_(before_) {
    watcher_ = std::thread([this] {
        while (!ended_) {
            look();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
}

void MemoryWatch::stop() {
    if (ended_.exchange(true)) return;
    watcher_.join();
    look();
}

void MemoryWatch::look() {
    const std::uint64_t now = own_memory_bytes();
    if (now > peak_) peak_ = now;
}

} // namespace entrodraft::launch
