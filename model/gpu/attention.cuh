// What the kernels of attention share: where keys, values and partial results lie, and which keys a row sees.
//
// Included by attention.cu and attention_tensor_cores.cu.
#pragma once

#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

// Element of the cache's keys or values where a position's head begins.
__device__ inline std::size_t cache_at(const CacheView& cache, int layer, int slot, int kv_head, int place) {
    const std::size_t slots_before =
        static_cast<std::size_t>(layer) * static_cast<std::size_t>(cache.n_slots) + static_cast<std::size_t>(slot);
    const std::size_t heads_before =
        slots_before * static_cast<std::size_t>(cache.n_kv_heads) + static_cast<std::size_t>(kv_head);
    return (heads_before * static_cast<std::size_t>(cache.capacity) + static_cast<std::size_t>(place)) *
           static_cast<std::size_t>(cache.head_stride);
}

__device__ inline int blocks_of_keys(int n_keys) { // key_blocks()
    return (n_keys + kKeyBlock - 1) / kKeyBlock;
}

// The workspace: of each query (row and head) and block of keys {largest score, sum of weights, -, -, weighted values
// [head_stride]}. Weights are exp(score - largest).
__device__ inline float* part_of(const AttendCall& call, int row, int head, int block) {
    const auto query =
        static_cast<std::size_t>(row) * static_cast<std::size_t>(call.n_query_heads) + static_cast<std::size_t>(head);
    const auto blocks = static_cast<std::size_t>(blocks_of_keys(call.cache.capacity));
    return call.parts + (query * blocks + static_cast<std::size_t>(block)) *
                            static_cast<std::size_t>(kPartHead + call.cache.head_stride);
}

// Blocks of keys [first, end) of a query or a tile.
struct BlockRange {
    int first, end;
};

// Whether the parts of all of a query's blocks are there. Asked by one thread, behind a barrier of those that have
// stored a part and called __threadfence(), once for each part; true once, of the last.
__device__ inline bool is_last_part(const AttendCall& call, int row, int head, const BlockRange& blocks) {
    int* arrived = call.arrived + row * call.n_query_heads + head;
    if (atomicAdd(arrived, 1) < blocks.end - blocks.first - 1) return false;
    *arrived = 0; // for the next layer
    __threadfence();
    return true;
}

// attended of a query from its parts, in the order of its keys; a warp. Other multiprocessors have written them: they
// are read past the cache that each has for itself. kFours: of 128 dimensions.
template <typename T, int kFours>
__device__ void merge_parts_of_query(const AttendCall& call, int row, int head, const BlockRange& blocks) {
    const int lane = lane_of_thread(), dim = call.cache.head_dim, dims = call.cache.head_stride;
    const float* parts = part_of(call, row, head, 0);
    const auto part = [&](int block) { return parts + static_cast<std::size_t>(block) * (kPartHead + dims); };
    float largest = -INFINITY;
    for (int block = blocks.first + lane; block < blocks.end; block += kWarp)
        largest = fmaxf(largest, __ldcg(part(block)));
    largest = warp_max(largest);
    float sum = 0, values[kFours][4] = {};
    for (int first = blocks.first; first < blocks.end; first += kWarp) {
        const int own = first + lane, n = blocks.end - first < kWarp ? blocks.end - first : kWarp;
        float weight = 0;
        if (own < blocks.end) {
            weight = expf(__ldcg(part(own)) - largest);
            sum += weight * __ldcg(part(own) + 1);
        }
#pragma unroll 4
        for (int i = 0; i < n; ++i) {
            const float of_part = __shfl_sync(kAllLanes, weight, i);
#pragma unroll
            for (int e = 0; e < kFours; ++e) {
                const int d = 4 * (lane + e * kWarp);
                const float4 four =
                    __ldcg(reinterpret_cast<const float4*>(part(first + i) + kPartHead + (d < dims ? d : 0)));
                values[e][0] += of_part * four.x;
                values[e][1] += of_part * four.y;
                values[e][2] += of_part * four.z;
                values[e][3] += of_part * four.w;
            }
        }
    }
    sum = warp_sum(sum);
    T* out = static_cast<T*>(call.attended) +
             static_cast<std::size_t>(row) * static_cast<std::size_t>(call.out_stride) +
             static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
#pragma unroll
    for (int e = 0; e < kFours; ++e)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (const int d = 4 * (lane + e * kWarp) + i; d < dim) out[d] = from_float<T>(values[e][i] / sum);
}

// The lowest n bits; none below 1, all from 32 on.
__device__ inline unsigned low_bits(int n) {
    return n <= 0 ? 0u : n >= 32 ? 0xffffffffu : (1u << n) - 1;
}

// Which keys a row sees in this layer: [begin, end).
struct Reach {
    int begin, end;
    // Bit i: whether it sees key first + i, of 32.
    __device__ unsigned seen(int first) const { return low_bits(end - first) & ~low_bits(begin - first); }
    __device__ BlockRange blocks() const { return {begin / kKeyBlock, blocks_of_keys(end)}; }
    __device__ bool meets(int block) const { return end > block * kKeyBlock && begin < (block + 1) * kKeyBlock; }
};

__device__ inline Reach reach_of(const RowTable& table, int row, int window) {
    const int n_keys = table.n_keys[row];
    return {window > 0 && n_keys > window ? n_keys - window : 0, n_keys};
}

// Which bit is the n-th that is set, from 0 on; there are more than n.
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

// Where a key that a row sees lies. Keys of a tree's row are numbered as those of its branch alone, and so are added up
// as they are for that text.
__device__ inline int place_of(const RowTable& table, int row, int key) {
    const int mask_begin = table.mask_begins[row];
    if (mask_begin < 0 || key < mask_begin) return key;
    const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(table.mask_words);
    return mask_begin + nth_bit(table.masks + first, key - mask_begin);
}

// Of a row, where scores ask for it.
__device__ inline int position_of(const RowTable& table, const AttendCall& call, int row) {
    return call.relative_biases != nullptr ? table.positions[row] : 0;
}

// A score from the product q . key, with the family's cap and bias, of a row at that position.
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

// attend() of rows that the workspace holds, over a cache of 16-bit numbers.
void attend_tensor_cores(void* stream, const RowTable& table, const AttendCall& call);

} // namespace entrodraft::model::gpu
