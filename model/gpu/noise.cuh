// The noise of spec/verify/random.h on the device. It has the same bits, because it only adds, multiplies and divides,
// in the same order.
//
// Included by row_best.cuh. A rough float32 value tells which tokens need the exact value.
#pragma once

#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

struct Words {
    std::uint32_t of[4];
};

// Below this, 32 more bits refine a word, and the rough value says little.
constexpr std::uint32_t kRefinedBelow = 1u << 20;

// Philox4x32-10: spec/verify/random.h.
__device__ inline Words philox(Words counter, std::uint32_t key0, std::uint32_t key1) {
    for (int round = 0; round < 10; ++round) {
        const std::uint32_t high0 = __umulhi(0xD2511F53u, counter.of[0]), low0 = 0xD2511F53u * counter.of[0];
        const std::uint32_t high1 = __umulhi(0xCD9E8D57u, counter.of[2]), low1 = 0xCD9E8D57u * counter.of[2];
        counter = {{high1 ^ counter.of[1] ^ key0, low1, high0 ^ counter.of[3] ^ key1, low0}};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

__device__ inline std::uint32_t word_of(const DeviceNoise& noise, std::uint32_t token) {
    const Words words = philox({{static_cast<std::uint32_t>(noise.position),
                                 static_cast<std::uint32_t>(noise.position >> 32), token / 64 * 16 + token % 16, 0}},
                               noise.key[0], noise.key[1]);
    return words.of[token / 16 % 4];
}

// log((1 + s) / (1 - s)), |s| <= 0.172
__device__ inline double log_ratio(double s) {
    const double z = __dmul_rn(s, s);
    double sum = 1.0 / 23;
    for (int odd = 21; odd >= 1; odd -= 2)
        sum = __dadd_rn(__dmul_rn(sum, z), __ddiv_rn(1.0, odd));
    return __dmul_rn(__dmul_rn(2, s), sum);
}

// For a normal number.
__device__ inline double natural_log(double x) {
    constexpr double kLn2 = 0x1.62e42fefa39efp-1, kSqrtHalf = 0x1.6a09e667f3bcdp-1;
    const long long bits = __double_as_longlong(x);
    int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1022;
    double mantissa = __longlong_as_double((bits & 0x000fffffffffffffLL) | 0x3fe0000000000000LL);
    if (mantissa < kSqrtHalf) {
        mantissa *= 2;
        --exponent;
    }
    return __dadd_rn(__dmul_rn(exponent, kLn2),
                     log_ratio(__ddiv_rn(__dadd_rn(mantissa, -1.0), __dadd_rn(mantissa, 1.0))));
}

// As GumbelNoise::of_word().
__device__ inline double noise_of_word(std::uint32_t word, const DeviceNoise& noise, std::uint32_t token) {
    double below = 0.5;
    if (word < kRefinedBelow) {
        const Words more = philox(
            {{static_cast<std::uint32_t>(noise.position), static_cast<std::uint32_t>(noise.position >> 32), token, 1}},
            noise.key[0], noise.key[1]);
        below = __dmul_rn(__dadd_rn(more.of[0], 0.5), 0x1p-32);
    }
    const double v = __dmul_rn(__dadd_rn(word, below), 0x1p-32);
    const double exponential = v < 0.25 ? log_ratio(__ddiv_rn(v, __dadd_rn(2, -v))) : -natural_log(__dadd_rn(1, -v));
    return -natural_log(exponential);
}

// At most 1e-5 off, if the word is not refined.
__device__ inline float rough_noise(std::uint32_t word) {
    const float v = (static_cast<float>(word) + 0.5f) * 0x1p-32f;
    const float exponential = v < 0.5f ? -log1pf(-v) : -logf((static_cast<float>(~word) + 0.5f) * 0x1p-32f);
    return -logf(exponential);
}

} // namespace entrodraft::model::gpu
