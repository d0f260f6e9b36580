// The parts that the kernels of attention share: the places of keys, values and partial results, and which keys a row
// sees.
//
// Included by attention.cu, cache.cu and attention_steps.cuh.
#pragma once

#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

// Returns the element of the cache's keys or values where a position's head begins.
__device__ inline std::size_t cache_at(const CacheView& cache, int layer, int slot, int kv_head, int place) {
    const std::size_t slots_before =
        static_cast<std::size_t>(layer) * static_cast<std::size_t>(cache.n_slots) + static_cast<std::size_t>(slot);
    const std::size_t heads_before =
        slots_before * static_cast<std::size_t>(cache.n_kv_heads) + static_cast<std::size_t>(kv_head);
    return (heads_before * static_cast<std::size_t>(cache.capacity) + static_cast<std::size_t>(place)) *
           static_cast<std::size_t>(cache.head_stride);
}

__device__ inline int blocks_of_keys(int n_keys) { // the same as key_blocks()
    return (n_keys + kKeyBlock - 1) / kKeyBlock;
}

// Rotates a head's first 2 `half` numbers, in shared memory, by the angles of its position. A warp calls it. Call is
// PlaceCall or PlaceLatentsCall.
template <typename Call> __device__ void rotate(const Call& call, int position, int half, float* head) {
    const std::size_t angles = static_cast<std::size_t>(position) * static_cast<std::size_t>(half);
    for (int i = lane_of_thread(); i < half; i += kWarp) { // each lane has both numbers of a pair
        const float cosine = call.cosines[angles + static_cast<std::size_t>(i)];
        const float sine = call.sines[angles + static_cast<std::size_t>(i)];
        float &first = head[call.interleaved ? 2 * i : i], &second = head[call.interleaved ? 2 * i + 1 : i + half];
        const float a = first, b = second;
        first = a * cosine - b * sine;
        second = b * cosine + a * sine;
    }
    __syncwarp();
}

// Returns the part of a query (row and head) and a block of keys, in the workspace: {largest score, sum of weights, -,
// -, weighted values [padded_values()]}. Weights are exp(score - largest).
__device__ inline float* part_of(const AttendCall& call, int row, int head, int block) {
    const auto query =
        static_cast<std::size_t>(row) * static_cast<std::size_t>(call.n_query_heads) + static_cast<std::size_t>(head);
    const auto blocks = static_cast<std::size_t>(blocks_of_keys(call.cache.capacity));
    return call.parts + (query * blocks + static_cast<std::size_t>(block)) *
                            static_cast<std::size_t>(kPartHead + padded_values(call.cache.value_dim));
}

// The blocks of keys [first, end) that a query sees.
struct BlockRange {
    int first, end;
    __device__ int size() const { return end - first; }
};

__device__ inline int group_of(int block) {
    return block / kMergedBlocks;
}

// The result over some of a query's keys, held by a warp. kFours: groups of 128 dimensions, 4 of them in each lane.
template <int kFours> struct Merged {
    float largest, sum;
    float values[kFours][4];
};

// Merges n parts of a query in order: blocks `first`, first + step, and so on. A warp calls it. Other multiprocessors
// wrote the parts, so the reads bypass this multiprocessor's own cache.
template <int kFours>
__device__ Merged<kFours> merge_parts(const AttendCall& call, int row, int head, int first, int step, int n) {
    constexpr int kAtOnce = kFours <= 2 ? 8 : 2; // loads per lane, for each four
    const int lane = lane_of_thread(), dims = padded_values(call.cache.value_dim);
    const float* parts = part_of(call, row, head, first);
    const std::size_t stride = static_cast<std::size_t>(step) * static_cast<std::size_t>(kPartHead + dims);
    const auto head_of = [&](int i) {
        return __ldcg(reinterpret_cast<const float2*>(parts + static_cast<std::size_t>(i) * stride));
    };
    Merged<kFours> merged = {-INFINITY, 0, {}};
    for (int i = lane; i < n; i += kWarp)
        merged.largest = fmaxf(merged.largest, head_of(i).x);
    merged.largest = warp_max(merged.largest);
    for (int begin = 0; begin < n; begin += kWarp) {
        float weight = 0;
        if (begin + lane < n) {
            const float2 part = head_of(begin + lane);
            weight = expf(part.x - merged.largest);
            merged.sum += weight * part.y;
        }
        const int count = n - begin < kWarp ? n - begin : kWarp;
        for (int i = 0; i < count; i += kAtOnce)
#pragma unroll
            for (int e = 0; e < kFours; ++e) {
                const int d = 4 * (lane + e * kWarp);
                const float* from = parts + kPartHead + (d < dims ? d : 0);
                float4 fours[kAtOnce]; // past the last part it is read again, with weight 0
#pragma unroll
                for (int j = 0; j < kAtOnce; ++j) {
                    const int part = begin + (i + j < count ? i + j : count - 1);
                    fours[j] = __ldcg(reinterpret_cast<const float4*>(from + static_cast<std::size_t>(part) * stride));
                }
#pragma unroll
                for (int j = 0; j < kAtOnce; ++j) {
                    const float of_part = __shfl_sync(kAllLanes, weight, i + j); // i + j < kWarp
                    merged.values[e][0] += of_part * fours[j].x;
                    merged.values[e][1] += of_part * fours[j].y;
                    merged.values[e][2] += of_part * fours[j].z;
                    merged.values[e][3] += of_part * fours[j].w;
                }
            }
    }
    merged.sum = warp_sum(merged.sum);
    return merged;
}

// Returns the place of a query's result: the first dimension of its head.
template <typename T> __device__ T* attended_by(const AttendCall& call, int row, int head) {
    return static_cast<T*>(call.attended) + static_cast<std::size_t>(row) * static_cast<std::size_t>(call.out_stride) +
           static_cast<std::size_t>(head) * static_cast<std::size_t>(call.cache.value_dim);
}

// Returns the sum of a head's weights exp(score - largest). Adds the sink's weight to `sum`, which is that of the keys.
__device__ inline float with_sink(const AttendCall& call, int head, float largest, float sum) {
    return call.sinks == nullptr ? sum : sum + expf(call.sinks[head] - largest);
}

template <typename T, int kFours>
__device__ void store_result(const AttendCall& call, int row, int head, const Merged<kFours>& merged) {
    T* out = attended_by<T>(call, row, head);
    const float sum = with_sink(call, head, merged.largest, merged.sum);
#pragma unroll
    for (int e = 0; e < kFours; ++e)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (const int d = 4 * (lane_of_thread() + e * kWarp) + i; d < call.cache.value_dim)
                out[d] = from_float<T>(merged.values[e][i] / sum);
}

template <int kFours>
__device__ void store_part(const AttendCall& call, int row, int head, int block, const Merged<kFours>& merged) {
    float* part = part_of(call, row, head, block);
    if (lane_of_thread() == 0) *reinterpret_cast<float2*>(part) = {merged.largest, merged.sum};
#pragma unroll
    for (int e = 0; e < kFours; ++e)
        if (const int d = 4 * (lane_of_thread() + e * kWarp); d < padded_values(call.cache.value_dim))
            *reinterpret_cast<float4*>(part + kPartHead + d) = {merged.values[e][0], merged.values[e][1],
                                                                merged.values[e][2], merged.values[e][3]};
}

// Returns true once, to the last of n callers. For each of the n one thread asks, after a barrier of the threads that
// have stored it and called __threadfence().
__device__ inline bool is_last_of(int* arrived, int n) {
    if (atomicAdd(arrived, 1) < n - 1) return false;
    *arrived = 0; // for the next layer
    __threadfence();
    return true;
}

// Merges the parts that are complete together with the part of this block. A warp calls it. Each lane may have a query
// whose part is stored (is_last_of()), and the blocks that the query sees. A lane without a query has a negative row.
template <typename T, int kFours>
__device__ void merge_complete(const AttendCall& call, int row, int head, const BlockRange& blocks, int block) {
    const int n_counters = group_of(blocks_of_keys(call.cache.capacity) - 1) + 2, group = group_of(block),
              begin = group * kMergedBlocks;
    const int first_group = group_of(blocks.first), n_groups = group_of(blocks.end - 1) + 1 - first_group;
    const int first = begin > blocks.first ? begin : blocks.first;
    const int end = begin + kMergedBlocks < blocks.end ? begin + kMergedBlocks : blocks.end;
    const auto counter = [&](int i) { return call.arrived + (row * call.n_query_heads + head) * n_counters + i; };
    bool is_last = row >= 0 && is_last_of(counter(1 + group), end - first);
    unsigned complete = __ballot_sync(kAllLanes, is_last);
    if (complete == 0) return;
    __syncwarp(); // all lanes see what one lane has seen of other blocks
    for (unsigned left = complete; left != 0; left &= left - 1) {
        const int lane = __ffs(static_cast<int>(left)) - 1;
        const int of_row = __shfl_sync(kAllLanes, row, lane), of_head = __shfl_sync(kAllLanes, head, lane);
        const int from = __shfl_sync(kAllLanes, first, lane), n = __shfl_sync(kAllLanes, end, lane) - from;
        const Merged<kFours> merged = merge_parts<kFours>(call, of_row, of_head, from, 1, n);
        __syncwarp(); // all parts have been read: the group's part replaces that of its first block
        if (__shfl_sync(kAllLanes, n_groups, lane) == 1)
            store_result<T>(call, of_row, of_head, merged);
        else
            store_part(call, of_row, of_head, begin, merged);
    }
    __threadfence();
    __syncwarp();
    is_last = is_last && n_groups > 1 && is_last_of(counter(0), n_groups);
    complete = __ballot_sync(kAllLanes, is_last);
    __syncwarp();
    for (unsigned left = complete; left != 0; left &= left - 1) {
        const int lane = __ffs(static_cast<int>(left)) - 1;
        const int of_row = __shfl_sync(kAllLanes, row, lane), of_head = __shfl_sync(kAllLanes, head, lane);
        const int from = __shfl_sync(kAllLanes, first_group, lane) * kMergedBlocks;
        store_result<T>(
            call, of_row, of_head,
            merge_parts<kFours>(call, of_row, of_head, from, kMergedBlocks, __shfl_sync(kAllLanes, n_groups, lane)));
    }
}

// Returns a mask of the lowest n bits: none if n is below 1, all if n is 32 or more.
__device__ inline unsigned low_bits(int n) {
    return n <= 0 ? 0u : n >= 32 ? 0xffffffffu : (1u << n) - 1;
}

// The keys that a row sees in this layer: [begin, end).
struct Reach {
    int begin, end;
    // Bit i of the result is set if the row sees key first + i, for 32 keys.
    __device__ unsigned seen(int first) const { return low_bits(end - first) & ~low_bits(begin - first); }
    __device__ BlockRange blocks() const { return {begin / kKeyBlock, blocks_of_keys(end)}; }
    __device__ bool meets(int block) const { return end > block * kKeyBlock && begin < (block + 1) * kKeyBlock; }
};

__device__ inline Reach reach_of(const RowTable& table, int row, int window) {
    const int n_keys = table.n_keys[row];
    return {window > 0 && n_keys > window ? n_keys - window : 0, n_keys};
}

// Returns the index of the n-th set bit, counted from 0. More than n bits are set.
__device__ inline int nth_bit(const std::uint64_t* words, int n) {
    std::uint64_t word = *words;
    int bit = 0;
    for (int in_word = __popcll(word); n >= in_word; in_word = __popcll(word)) {
        n -= in_word;
        bit += 64;
        word = *++words;
    }
#pragma unroll
    for (int width = 32; width > 0; width /= 2) {
        const int below = __popcll(word & ((std::uint64_t{1} << width) - 1));
        if (n < below) continue;
        n -= below;
        word >>= width;
        bit += width;
    }
    return bit;
}

// Returns the place of a key that a row sees. Keys of a tree's row are numbered as if its branch were the whole text,
// so they are added up in the same order as for that text.
__device__ inline int place_of(const RowTable& table, int row, int key) {
    const int mask_begin = table.mask_begins[row];
    if (mask_begin < 0 || key < mask_begin) return key;
    const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(table.mask_words);
    return mask_begin + nth_bit(table.masks + first, key - mask_begin);
}

// Returns the row's position if scores need it, else 0.
__device__ inline int position_of(const RowTable& table, const AttendCall& call, int row) {
    return call.relative_biases != nullptr ? table.positions[row] : 0;
}

// Returns the score of a row at that position from the product q . key, with the family's cap and bias.
__device__ inline float score_of(const AttendCall& call, float product, int key, int head, int position) {
    float score = product * call.scale;
    if (call.soft_cap > 0) score = call.soft_cap * tanhf(score * __fdividef(1.0f, call.soft_cap));
    if (call.slopes != nullptr) {
        const float bias = call.slopes[head] * static_cast<float>(key);
        score += call.scaled_alibi ? to_float(from_float<__nv_bfloat16>(bias)) * call.scale : bias;
    }
    if (call.relative_biases != nullptr) {
        const int reach = call.max_distance, behind = position - key;
        const int distance = behind < -reach ? -reach : behind > reach ? reach : behind;
        score += call.relative_biases[head * (2 * reach + 1) + reach + distance];
    }
    return score;
}

// As attend(), for rows whose parts fit into the workspace, over a cache of 16-bit numbers.
void attend_tensor_cores(void* stream, const RowTable& table, const AttendCall& call);
// As attend_tensor_cores(), over a latent cache.
void attend_latent(void* stream, const RowTable& table, const AttendCall& call);

} // namespace entrodraft::model::gpu
