// What the attention kernels on tensor cores share: conversions of number types, the mapping of heads, products, and a
// guard. The guard keeps non-finite values at masked positions from reaching the queries that mask them.
// Included by attention_tiles.cuh, attention_prompt.cu and latent.cu.
#pragma once

#include "model/gpu/attention.cuh"

#include <type_traits>

namespace entrodraft::model::gpu {

inline constexpr int kTileQueries = 16; // the rows of a tensor-core step

__device__ inline unsigned word_of(const uint4& from, int i) {
    return i == 0 ? from.x : i == 1 ? from.y : i == 2 ? from.z : from.w;
}

// Returns 8 numbers of a row from d on, zeros past the row's end.
template <typename T> __device__ uint4 eighth_at(const T* row, int d, int dim) {
    if (d >= dim) return {0, 0, 0, 0};
    if (d + 8 <= dim && reinterpret_cast<std::uintptr_t>(row + d) % sizeof(uint4) == 0)
        return *reinterpret_cast<const uint4*>(row + d);
    T numbers[8];
    for (int i = 0; i < 8; ++i)
        numbers[i] = d + i < dim ? row[d + i] : from_float<T>(0);
    uint4 eight;
    memcpy(&eight, numbers, sizeof eight);
    return eight;
}

// Returns 2 ^ x to 2e-7; 0 if it would be below 1e-38.
__device__ inline float power_of_two(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}
inline constexpr float kLog2OfE = 1.44269504f;

// Two numbers of 16 bits, the first in the low half.
template <typename T> __device__ unsigned pair_of(float low, float high) {
    unsigned bits;
#if defined(__CUDA_ARCH__) // the compiler rounds them one after another, a quarter as fast
    if constexpr (std::is_same_v<T, __half>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#else
    const T both[2] = {from_float<T>(low), from_float<T>(high)};
    memcpy(&bits, both, sizeof bits);
#endif
    return bits;
}

// The query heads of a key head; they lie together.
struct QueryHeads {
    int begin, count;
};

__device__ inline QueryHeads query_heads_of(const AttendCall& call, int kv_head) {
    int begin = call.n_query_heads, end = 0;
#pragma unroll 1
    for (int head = lane_of_thread(); head < call.n_query_heads; head += kWarp)
        if (call.kv_head_of[head] == kv_head) {
            begin = head < begin ? head : begin;
            end = head + 1;
        }
    begin = __reduce_min_sync(kAllLanes, begin);
    return {begin, __reduce_max_sync(kAllLanes, end) - begin};
}

template <typename T> __device__ T of_lane(T value, int lane) {
    return __shfl_sync(kAllLanes, value, lane);
}

// The places where rows that share their keys have the keys, or values, of a layer.
template <typename T> struct CachePlaces {
    const uint4 *own, *shared; // place 0 of the rows' slot, and of the slot that holds their prefix
    __device__ CachePlaces(const RowTable& table, const AttendCall& call, const void* cache, int row, int kv_head) {
        const auto at = [&](const std::int32_t* slots) {
            const T* from = static_cast<const T*>(cache);
            return reinterpret_cast<const uint4*>(from + cache_at(call.cache, call.layer, slots[row], kv_head, 0));
        };
        own = at(table.slots);
        shared = at(table.prefix_slots);
    }
};

// Returns the key of [begin, end) nearest to this key. It is read in place of a key that no query has.
__device__ inline int nearest_key(int key, int begin, int end) {
    return key < begin ? begin : key < end ? key : end - 1;
}

// ---- lane 4 g + t has queries g and g + 8 of a step, index [2] or i below ----

__device__ inline int lane_g() {
    return lane_of_thread() / 4;
}
__device__ inline int lane_t() {
    return lane_of_thread() % 4;
}

// Returns whether any of 8 numbers is infinite or NaN. Then its exponent is all ones, and adding one carries.
template <typename T> __device__ bool has_non_finite(const uint4& eight) {
    constexpr bool kIsHalf = std::is_same_v<T, __half>;
    constexpr unsigned kExponents = kIsHalf ? 0x7c007c00u : 0x7f807f80u, kOnes = kIsHalf ? 0x04000400u : 0x00800080u;
    const auto carries = [](unsigned pair) { return (pair & kExponents) + kOnes; };
    return ((carries(eight.x) | carries(eight.y) | carries(eight.z) | carries(eight.w)) & 0x80008000u) != 0;
}

// Takes non-finite values out of the product: zero times them is NaN, even for queries that do not see the key. Returns
// their keys, one bit per key of the warp, for the 8 dimensions of the lanes with the same g.
template <typename T> __device__ unsigned take_out_non_finite(uint4 (&values)[2][4]) {
    bool any = false;
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int k = 0; k < 4; ++k)
            any = has_non_finite<T>(values[step][k]) || any;
    unsigned keys = 0;
    if (!__any_sync(kAllLanes, any)) return keys;
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (!has_non_finite<T>(values[step][k])) continue;
            values[step][k] = {0, 0, 0, 0};
            keys |= 1u << (16 * step + 2 * lane_t() + k % 2 + 8 * (k / 2));
        }
    keys |= __shfl_xor_sync(kAllLanes, keys, 1);
    return keys | __shfl_xor_sync(kAllLanes, keys, 2);
}

// Makes sums NaN for the queries that see a key whose values were taken out. seen_by(i) has one bit per key.
template <typename Seen> __device__ void spoil_sums(const Seen& seen_by, unsigned taken_out, float (&sums)[8][4]) {
    if (!__any_sync(kAllLanes, taken_out != 0)) return;
#pragma unroll
    for (int b = 0; b < 2; ++b) {
        const unsigned keys = of_lane(taken_out, 4 * (2 * lane_t() + b));
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j)
                if ((seen_by(i) & keys) != 0) sums[j][2 * i + b] = NAN;
    }
}

// Weights of two steps of 16 keys as a step's left side.
struct StepWeights {
    unsigned pairs[2][4];
};

// Adds to sums [j][2 i + b]: query i of the lane, dimension 16 t + 8 b + j of 64; over the weights' terms.
template <typename T, int kTerms>
__device__ void multiply_values(const StepWeights (&weights)[kTerms], const uint4 (&values)[2][4],
                                float (&sums)[8][4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const unsigned pick = j % 2 == 0 ? 0x5410u : 0x7632u; // dimension j of two keys
            const unsigned of_v[2] = {
                __byte_perm(word_of(values[step][0], j / 2), word_of(values[step][1], j / 2), pick),
                __byte_perm(word_of(values[step][2], j / 2), word_of(values[step][3], j / 2), pick)};
#pragma unroll
            for (int term = 0; term < kTerms; ++term)
                multiply_16x8x16<T>(sums[j], weights[term].pairs[step], of_v);
        }
}

} // namespace entrodraft::model::gpu
