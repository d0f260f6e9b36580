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

// The workspace: of each query (row and head) and block of keys {largest score, sum of weights, -, -, weighted values
// [head_stride]}. Weights are exp(score - largest).
__device__ inline float* part_of(const AttendCall& call, int row, int head, int block) {
    const auto query =
        static_cast<std::size_t>(row) * static_cast<std::size_t>(call.n_query_heads) + static_cast<std::size_t>(head);
    const auto blocks = static_cast<std::size_t>((call.max_keys + kKeyBlock - 1) / kKeyBlock);
    return call.partial + (query * blocks + static_cast<std::size_t>(block)) *
                              static_cast<std::size_t>(kPartHead + call.cache.head_stride);
}

// The lowest n bits; none below 1, all from 32 on.
__device__ inline unsigned low_bits(int n) {
    return n <= 0 ? 0u : n >= 32 ? 0xffffffffu : (1u << n) - 1;
}

// Which keys a row sees in this layer.
struct Reach {
    int begin, end;
    int mask_begin; // negative: no mask
    const std::uint64_t* mask;
    // Bit i: whether it sees key first + i, of 32; first is a multiple of 32.
    __device__ unsigned seen(int first) const {
        unsigned bits = low_bits(end - first) & ~low_bits(begin - first);
        if (mask_begin < 0 || first + 32 <= mask_begin || bits == 0) return bits;
        const int shift = first - mask_begin;
        if (shift < 0) return bits & (static_cast<unsigned>(mask[0] << -shift) | low_bits(-shift));
        const int word = shift / 64, bit = shift % 64;
        std::uint64_t of_tree = mask[word] >> bit;
        if (bit > 32 && word + 1 < kMaskWords) of_tree |= mask[word + 1] << (64 - bit);
        return bits & static_cast<unsigned>(of_tree);
    }
    __device__ bool meets(int block) const { return end > block * kKeyBlock && begin < (block + 1) * kKeyBlock; }
};

__device__ inline Reach reach_of(const RowTable& table, int row, int window) {
    Reach reach = {table.first_keys[row], table.n_keys[row], table.mask_begins[row],
                   table.masks + static_cast<std::size_t>(row) * kMaskWords};
    const int of_layer = window > 0 ? table.window_ends[row] - window : 0;
    if (of_layer > reach.begin) reach.begin = of_layer;
    if (reach.mask_begin >= 0 && reach.begin > reach.mask_begin) reach.begin = reach.mask_begin;
    return reach;
}

// A score from the product q . key, with the family's cap and bias.
__device__ inline float score_of(const AttendCall& call, float product, int key, int head) {
    float score = product * call.scale;
    if (call.soft_cap > 0) score = call.soft_cap * tanhf(score * __fdividef(1.0f, call.soft_cap));
    if (call.slopes != nullptr) {
        // Falcon rounds slope times place to bfloat16, and scales it as the product is scaled.
        const float bias = to_float(from_float<__nv_bfloat16>(call.slopes[head] * static_cast<float>(key)));
        score += bias * call.scale;
    }
    return score;
}

// The parts of all queries over all blocks of keys, of a cache of 16-bit numbers.
void attend_tensor_cores(void* stream, const RowTable& table, const AttendCall& call);

} // namespace entrodraft::model::gpu
