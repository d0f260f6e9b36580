// What attention's kernels on tensor cores share: how a warp reads keys and values, and multiplies 16 queries by them.
//
// As in linear.cu, a quad of lanes reads 64 bytes of a key that lie together, and keys and queries agree on which
// dimension is where inside a step; values are read 16 bytes a lane and brought into a step's order by byte
// permutations. Included by attention_tensor_cores.cu and attention_prompt.cu.
#pragma once

#include "model/gpu/attention.cuh"

#include <type_traits>

namespace entrodraft::model::gpu {

inline constexpr int kTileQueries = 16;   // the rows of a tensor-core step
inline constexpr int kQuarterPadding = 4; // uint4 behind a staged query: then no two lanes share a bank

__device__ inline unsigned word_of(const uint4& from, int i) {
    return i == 0 ? from.x : i == 1 ? from.y : i == 2 ? from.z : from.w;
}

// Of what is 0 or below, to 2e-7; what would be below 1e-38 is 0.
__device__ inline float fast_exp(float x) {
    const float in_twos = x * 1.44269504f;
#if defined(__CUDA_ARCH__)
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(in_twos));
    return result;
#else
    return exp2f(in_twos);
#endif
}

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

// Reads a warp's 32 keys or values of a layer.
template <typename T> struct CacheReader {
    const uint4 *own, *shared; // place 0 of a row's slot, and of the slot that holds its prefix
    int prefix_length, stride; // stride: uint4 a place
    int place;                 // of the key of the lane's number

    // `row` is one of those that share the keys.
    __device__ CacheReader(const RowTable& table, const AttendCall& call, const void* cache, int row, int kv_head,
                           int place_of_lane)
        : prefix_length(table.prefix_lengths[row]), stride(call.cache.head_stride / 8), place(place_of_lane) {
        const auto at = [&](const std::int32_t* slots) {
            const T* from = static_cast<const T*>(cache);
            return reinterpret_cast<const uint4*>(from + cache_at(call.cache, call.layer, slots[row], kv_head, 0));
        };
        own = at(table.slots);
        shared = at(table.prefix_slots);
    }
    __device__ const uint4* at(int key) const {
        const int of_key = of_lane(place, key);
        return (of_key < prefix_length ? shared : own) + of_key * stride;
    }
    // 8 dimensions of a key. Where there are none some others: no result of them is kept.
    __device__ uint4 operator()(const uint4* key, int eighth) const { return key[eighth < stride ? eighth : 0]; }
};

// The nearest key of those that queries have, [begin, end): it is read in place of one that none of them has.
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

// 8 keys a step, from number `first` on: lane (g, t) reads of key g the dimensions 8 t .. 8 t + 7 of every 32.
template <typename T, int kSteps, int kChunks>
__device__ void load_keys(const CacheReader<T>& reader, int first, uint4 (&keys)[kSteps][kChunks]) {
#pragma unroll
    for (int n = 0; n < kSteps; ++n) {
        const uint4* key = reader.at(first + 8 * n + lane_g());
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
            keys[n][c] = reader(key, 4 * c + lane_t());
    }
}

// Numbers of 16 queries in shared memory.
template <int kChunks> using StagedQueries = uint4[kTileQueries][4 * kChunks + kQuarterPadding];

// A warp; zeros where the row is negative.
template <typename T, int kChunks>
__device__ void stage_query(const AttendCall& call, int row, int head, int query, StagedQueries<kChunks>& queries) {
    const int dim = call.cache.head_dim;
    const T* from = static_cast<const T*>(call.qkv) +
                    static_cast<std::size_t>(row < 0 ? 0 : row) * static_cast<std::size_t>(call.stride) +
                    static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
    T* to = reinterpret_cast<T*>(queries[query]);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const int d = 32 * c + lane_of_thread();
        to[d] = row >= 0 && d < dim ? from[d] : from_float<T>(0);
    }
}

// scores [step][2 i + b]: of query i of the lane and key 2 t + b of the step.
template <typename T, int kSteps, int kChunks>
__device__ void multiply_keys(const StagedQueries<kChunks>& queries, const uint4 (&keys)[kSteps][kChunks],
                              float (*scores)[4]) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const uint4 low = queries[lane_g()][4 * c + lane_t()];
        const uint4 high = queries[lane_g() + 8][4 * c + lane_t()];
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const unsigned of_q[4] = {word_of(low, 2 * step), word_of(high, 2 * step), word_of(low, 2 * step + 1),
                                      word_of(high, 2 * step + 1)};
#pragma unroll
            for (int n = 0; n < kSteps; ++n) {
                const unsigned of_k[2] = {word_of(keys[n][c], 2 * step), word_of(keys[n][c], 2 * step + 1)};
                multiply_16x8x16<T>(scores[n], of_q, of_k);
            }
        }
    }
}

// 16 keys a step: lane (g, t) reads of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9 the dimensions 8 g .. 8 g + 7 of 64.
template <typename T> __device__ void load_values(const CacheReader<T>& reader, int half, uint4 (&values)[2][4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int k = 0; k < 4; ++k)
            values[step][k] = reader(reader.at(16 * step + 2 * lane_t() + k % 2 + 8 * (k / 2)), 8 * half + lane_g());
}

// Whether any of 8 numbers is infinite or none: its exponent is all ones, and a carry comes out of it.
template <typename T> __device__ bool has_non_finite(const uint4& eight) {
    constexpr bool kIsHalf = std::is_same_v<T, __half>;
    constexpr unsigned kExponents = kIsHalf ? 0x7c007c00u : 0x7f807f80u, kOnes = kIsHalf ? 0x04000400u : 0x00800080u;
    const auto carries = [](unsigned pair) { return (pair & kExponents) + kOnes; };
    return ((carries(eight.x) | carries(eight.y) | carries(eight.z) | carries(eight.w)) & 0x80008000u) != 0;
}

// Zero times what is not finite is NaN, for queries that do not see the key as well: such values are taken out of the
// product. Returns their keys, a bit each of the warp's, for the 8 dimensions of the lanes with the same g.
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

// Sums over keys whose values were taken out are NaN for the queries that see one of them: seen_by(i), a bit a key.
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

// sums [j][2 i + b] += of query i of the lane, dimension 16 t + 8 b + j of 64; over the weights' terms.
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
