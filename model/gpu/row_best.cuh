// Finds the best value among a block's threads, and gives it to all of them; among equals, the one with the lowest
// index. Also adds up parts.
//
// Included by logits.cu, spec/gpu/tree_loop.cu and spec/gpu/verify_rows.cu. Their blocks have kRowThreads threads, and
// each block looks at a part of a row.
#pragma once

#include "model/gpu/kernels.h"
#include "model/gpu/noise.cuh"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

constexpr int kRowThreads = 256;
constexpr float kLowest = -87.0f; // exponents are cut off here, so minus infinity times zero cannot arise

// The part [begin, end) of the `count` logits of row y that block x looks at.
struct BlockShare {
    int row, part, begin, end;
};

__device__ inline BlockShare share_of_block(int count) {
    const int row = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
    const int share = (count + kStatsBlocks - 1) / kStatsBlocks, begin = part * share;
    return {row, part, begin, begin + share < count ? begin + share : count};
}

struct Best {
    float max;
    int at; // -1: none
    float runner_up;
};

// NaN is above all other values, so that it is noticed.
template <typename T> __device__ bool is_above(T a, T b) {
    const bool is_a_nan = a != a, is_b_nan = b != b;
    return !is_b_nan && (is_a_nan || a > b);
}

// Returns the better of the bests of two disjoint sets of tokens.
__device__ inline Best better(const Best& a, const Best& b) {
    if (b.at < 0) return a;
    if (a.at < 0) return b;
    const bool is_b = is_above(b.max, a.max) || (b.max == a.max && b.at < a.at);
    Best best = is_b ? b : a;
    best.runner_up = fmaxf(best.runner_up, is_b ? a.max : b.max);
    return best;
}

__device__ inline Best of_other_lane(const Best& best, int step) {
    return {__shfl_xor_sync(kAllLanes, best.max, step), __shfl_xor_sync(kAllLanes, best.at, step),
            __shfl_xor_sync(kAllLanes, best.runner_up, step)};
}

__device__ inline DeviceNoisy better(const DeviceNoisy& a, const DeviceNoisy& b) {
    if (b.token < 0) return a;
    if (a.token < 0) return b;
    const bool is_b = is_above(b.value, a.value) || (b.value == a.value && b.token < a.token);
    DeviceNoisy best = is_b ? b : a;
    best.runner_up = fmax(best.runner_up, is_b ? a.value : b.value);
    return best;
}

__device__ inline DeviceNoisy of_other_lane(const DeviceNoisy& best, int step) {
    return {__shfl_xor_sync(kAllLanes, best.value, step), __shfl_xor_sync(kAllLanes, best.token, step),
            __shfl_xor_sync(kAllLanes, best.logit, step), __shfl_xor_sync(kAllLanes, best.runner_up, step)};
}

// The two largest values of a set.
struct Largest {
    float first, second;
};

__device__ inline Largest better(const Largest& a, const Largest& b) {
    return {fmaxf(a.first, b.first), fmaxf(fminf(a.first, b.first), fmaxf(a.second, b.second))};
}

__device__ inline Largest of_other_lane(const Largest& largest, int step) {
    return {__shfl_xor_sync(kAllLanes, largest.first, step), __shfl_xor_sync(kAllLanes, largest.second, step)};
}

template <typename T> __device__ T best_of_warp(T best) {
    for (int step = kWarp / 2; step > 0; step /= 2)
        best = better(best, of_other_lane(best, step));
    return best;
}

template <typename T> __device__ T best_of_block(T best) {
    __shared__ T of_warps[kRowThreads / kWarp];
    best = best_of_warp(best);
    if (lane_of_thread() == 0) of_warps[warp_of_thread()] = best;
    __syncthreads();
    best = of_warps[0];
    for (int i = 1; i < kRowThreads / kWarp; ++i)
        best = better(best, of_warps[i]);
    return best;
}

// Returns the best of exact(i) + noise over the share, with i as its token and without its logit. First looks at all
// tokens with rough(i), at most 1e-4 off, then computes exact values for those that may be best or second. The noise is
// that of token_of(i). A rough value of minus infinity excludes i; a NaN makes it the best.
template <typename Token, typename Rough, typename Exact>
__device__ DeviceNoisy noisiest_of_block(const BlockShare& share, const DeviceNoise& noise, const Token& token_of,
                                         const Rough& rough, const Exact& exact) {
    const auto first = share.begin + static_cast<int>(threadIdx.x);
    const auto token_at = [&](int i) { return static_cast<std::uint32_t>(token_of(i)); };
    Largest largest = {-INFINITY, -INFINITY};
    for (int i = first; i < share.end; i += kRowThreads)
        largest = better(largest, {rough(i) + rough_noise(word_of(noise, token_at(i))), -INFINITY});
    const float second = best_of_block(largest).second, enough = second - (1e-3f + 4e-7f * fabsf(second));
    DeviceNoisy best = {0, -1, 0, -INFINITY};
    for (int i = first; i < share.end; i += kRowThreads) {
        const std::uint32_t token = token_at(i), word = word_of(noise, token);
        const float value = rough(i);
        if (value != value) best = better(best, {static_cast<double>(value), i, 0, -INFINITY});
        if (!(value > -INFINITY)) continue;
        if (word >= kRefinedBelow && value + rough_noise(word) < enough) continue;
        best = better(best, {__dadd_rn(exact(i), noise_of_word(word, noise, token)), i, 0, -INFINITY});
    }
    return best_of_block(best);
}

// Merges two parts; `after` has the later tokens.
__device__ inline DeviceLogitStats merged(const DeviceLogitStats& before, const DeviceLogitStats& after) {
    if (after.arg_max < 0) return before;
    if (before.arg_max < 0) return after;
    // The part with the smaller maximum shrinks; the sums of shifted terms shift with it.
    const bool is_after = is_above(after.max, before.max);
    DeviceLogitStats high = is_after ? after : before;
    const DeviceLogitStats& low = is_after ? before : after;
    const double fall = low.max == high.max ? 0.0 : static_cast<double>(low.max) - static_cast<double>(high.max);
    const double kept = exp(fall);
    high.runner_up = fmaxf(high.runner_up, low.max);
    high.sum_shifted_exp += (low.sum_shifted_exp + (kept > 0 ? fall * low.sum_exp : 0.0)) * kept;
    high.sum_exp += low.sum_exp * kept;
    return high;
}

// Merges a warp's parts, one per lane: neighbours first, so that parts stay in order. The result is on every lane.
__device__ inline DeviceLogitStats merged_over_warp(DeviceLogitStats stats) {
    for (int step = 1; step < kWarp; step *= 2) {
        const DeviceLogitStats other = {
            __shfl_xor_sync(kAllLanes, stats.max, step), __shfl_xor_sync(kAllLanes, stats.arg_max, step),
            __shfl_xor_sync(kAllLanes, stats.sum_exp, step), __shfl_xor_sync(kAllLanes, stats.sum_shifted_exp, step),
            __shfl_xor_sync(kAllLanes, stats.runner_up, step)};
        stats = (lane_of_thread() & step) == 0 ? merged(stats, other) : merged(other, stats);
    }
    return stats;
}

} // namespace entrodraft::model::gpu
