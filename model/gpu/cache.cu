// Copies and moves positions of a cache.
#include "model/gpu/attention.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kMovesAtOnce = 8; // positions whose loads are under way together

// Block y: a head of a layer. A thread copies 16 bytes of its keys and values, one of a position's `chunks`.
__global__ void copy_heads(CopyCall call, int chunks) {
    begin_kernel();
    const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    if (i >= call.count * chunks) return;
    const int layer = static_cast<int>(blockIdx.y) / call.cache.n_kv_heads;
    const int head = static_cast<int>(blockIdx.y) % call.cache.n_kv_heads;
    const auto at = [&](int slot, int position) {
        const std::size_t number = cache_at(call.cache, layer, slot, head, position);
        return number / static_cast<std::size_t>(call.cache.head_stride) * static_cast<std::size_t>(chunks) +
               static_cast<std::size_t>(i);
    };
    const std::size_t from = at(call.from_slot, call.from), to = at(call.to_slot, call.to);
    const uint4 keys = static_cast<const uint4*>(call.cache.keys)[from],
                values = static_cast<const uint4*>(call.cache.values)[from];
    static_cast<uint4*>(call.cache.keys)[to] = keys;
    static_cast<uint4*>(call.cache.values)[to] = values;
}

// As copy_heads, but a thread moves 16 bytes of every position. Positions only move down, in order, so a store only
// overwrites data that was loaded before.
__global__ void move_heads(MoveCall call, int chunks) {
    begin_kernel();
    const int chunk = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    if (chunk >= chunks) return;
    const int layer = static_cast<int>(blockIdx.y) / call.cache.n_kv_heads;
    const int head = static_cast<int>(blockIdx.y) % call.cache.n_kv_heads;
    const std::size_t first = cache_at(call.cache, layer, call.slot, head, 0) /
                              static_cast<std::size_t>(call.cache.head_stride) * static_cast<std::size_t>(chunks);
    const auto at = [&](void* numbers, int position) -> uint4& {
        return static_cast<uint4*>(numbers)[first + static_cast<std::size_t>(position * chunks + chunk)];
    };
    for (int begin = 0; begin < call.count; begin += kMovesAtOnce) {
        uint4 keys[kMovesAtOnce], values[kMovesAtOnce];
#pragma unroll
        for (int i = 0; i < kMovesAtOnce; ++i)
            if (begin + i < call.count) {
                keys[i] = at(call.cache.keys, call.from[begin + i]);
                values[i] = at(call.cache.values, call.from[begin + i]);
            }
#pragma unroll
        for (int i = 0; i < kMovesAtOnce; ++i)
            if (begin + i < call.count) {
                at(call.cache.keys, call.to + begin + i) = keys[i];
                at(call.cache.values, call.to + begin + i) = values[i];
            }
    }
}

// Number of 16-byte chunks in one head of a position.
int chunks_of(const CacheView& cache) {
    return static_cast<int>(static_cast<std::size_t>(cache.head_stride) * bytes_of(cache.type) / sizeof(uint4));
}

dim3 blocks_of(const CacheView& cache, int n_layers, int chunks) {
    return {blocks_for(static_cast<std::size_t>(chunks), kThreads), static_cast<unsigned>(n_layers * cache.n_kv_heads)};
}

} // namespace

void copy_positions(void* stream, const CopyCall& call) {
    const int chunks = chunks_of(call.cache);
    launch(stream, {blocks_of(call.cache, call.n_layers, call.count * chunks), kThreads}, copy_heads, call, chunks);
}

void move_positions(void* stream, const MoveCall& call) {
    const int chunks = chunks_of(call.cache);
    launch(stream, {blocks_of(call.cache, call.n_layers, chunks), kThreads}, move_heads, call, chunks);
}

} // namespace entrodraft::model::gpu
