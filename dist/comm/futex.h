// Sleeps until a word in memory changes. Processes that map the same memory can wake each other.
//
// On Linux this is a futex (futex(2), without FUTEX_PRIVATE_FLAG). On other systems, and where futexes are forbidden,
// it is a short sleep, after which the caller looks again. backoff and node_comm use it.
#pragma once

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <time.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace entrodraft::dist {

// Sleeps for this time, which is below a second, plus the kernel's own delay.
inline void nap(std::chrono::nanoseconds length = std::chrono::microseconds{20}) {
    const timespec time{0, length.count()};
    nanosleep(&time, nullptr);
}

// Sleeps while `word` holds `value`, for at most `longest`, which is not negative; a signal ends the sleep too. The
// caller looks again in any case.
inline void sleep_while(const std::uint32_t* word, std::uint32_t value, std::chrono::nanoseconds longest) {
#if defined(__linux__)
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
    const timespec length{static_cast<time_t>(seconds.count()), static_cast<long>((longest - seconds).count())};
    if (syscall(SYS_futex, word, FUTEX_WAIT, value, &length, nullptr, 0) == 0) return;
    if (errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT) return;
#else
    (void)word, (void)value, (void)longest;
#endif
    nap();
}

// Ends the sleep of all who sleep on `word`.
inline void wake_sleepers(const std::uint32_t* word) {
#if defined(__linux__)
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
#else
    (void)word;
#endif
}

} // namespace entrodraft::dist
