// What bounds on time are held against. For tests only.
#pragma once

#include <ctime>

namespace entrodraft {

// Of this process so far: a busy machine makes wall clocks run on.
inline double cpu_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// How many times as long sanitizers may make it last.
#if defined(__has_feature)
#define ENTRODRAFT_HAS_FEATURE(feature) __has_feature(feature)
#else
#define ENTRODRAFT_HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || ENTRODRAFT_HAS_FEATURE(address_sanitizer)
inline constexpr double kSlowdown = 30;
#else
inline constexpr double kSlowdown = 1;
#endif

} // namespace entrodraft
