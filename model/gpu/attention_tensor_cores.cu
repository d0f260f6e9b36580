// Attention over 16-bit caches on tensor cores: what bounds a pass over long contexts, by reading the cache once.
//
// A block of threads takes kKeyBlock keys of a key head, and of the queries of that head (every row and query head that
// reads it) 16 at a time, a tile: the 16 rows of a tensor-core step. Rows of one text that follow each other share
// their keys, so a tile holds queries of one such run. Each warp has 32 of the keys, all loads of which are under way
// before the first is used. As in linear.cu, a quad of lanes reads 64 bytes of a key that lie together, and keys and
// queries agree on which dimension is where inside a step; values are read 16 bytes a lane and brought into a step's
// order by byte permutations. Weights go into the product as two numbers, rounded and what rounding has left out, so
// that no more than the float32 sums' rounding is lost.
//
// A query is a row of the step alone, its keys lie in the same block, warp and step whatever else is in the tile, and
// keys that it does not see weigh 0: so its bits do not depend on how queries are grouped.
#include "model/gpu/attention.cuh"

#include <algorithm>

namespace entrodraft::model::gpu {

namespace {

constexpr int kTileQueries = 16;
constexpr int kTileWarps = 8;
constexpr int kWarpKeys = kKeyBlock / kTileWarps; // 4 steps of 8 keys for scores, 2 of 16 for values
constexpr int kQuarterPadding = 4;                // uint4 behind a staged query: then no two lanes share a bank
constexpr int kFillingBlocks = 512;               // blocks of threads that keep a large device busy

__device__ inline unsigned word_of(const uint4& from, int i) {
    return i == 0 ? from.x : i == 1 ? from.y : i == 2 ? from.z : from.w;
}

// Two numbers of 16 bits, the first in the low half.
template <typename T> __device__ unsigned pair_of(float low, float high) {
    const T both[2] = {from_float<T>(low), from_float<T>(high)};
    unsigned bits;
    memcpy(&bits, both, sizeof bits);
    return bits;
}

// The query heads of a key head; they lie together.
struct QueryHeads {
    int begin, count;
};

__device__ QueryHeads query_heads_of(const AttendCall& call, int kv_head) {
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

// Rows [begin, end) read the same keys.
__device__ int end_of_run(const RowTable& table, int begin) {
    for (int first = begin + 1;; first += kWarp) {
        const int row = first + lane_of_thread();
        const bool differs = row >= table.rows || table.slots[row] != table.slots[begin] ||
                             table.prefix_slots[row] != table.prefix_slots[begin] ||
                             table.prefix_lengths[row] != table.prefix_lengths[begin];
        const unsigned ends = __ballot_sync(kAllLanes, differs);
        if (ends != 0) return first + __ffs(static_cast<int>(ends)) - 1;
    }
}

// 16 queries of a run, numbered row by row; fewer in the run's last tile. In shared memory, and with it the place of a
// block's walk along its tiles: no register is taken while a tile is computed.
struct Tile {
    int kv_head;
    QueryHeads heads;
    int run_begin, run_end; // rows
    int number;             // of the run's tiles
    __device__ int n_queries() const { return (run_end - run_begin) * heads.count; }
};

// From the tile it names on, the first that is there; an empty run behind the last row.
__device__ Tile find_tile(const RowTable& table, Tile tile) {
    while (tile.run_begin < table.rows) {
        tile.run_end = end_of_run(table, tile.run_begin);
        const bool is_padding = table.slots[tile.run_begin] < 0;
        const int n_tiles = is_padding ? 0 : (tile.n_queries() + kTileQueries - 1) / kTileQueries;
        if (tile.number < n_tiles) return tile;
        tile.number -= n_tiles;
        tile.run_begin = tile.run_end;
    }
    return tile;
}

struct Query {
    int row; // negative: none
    int head;
    bool meets_block; // some key of it
};

template <typename T> __device__ T of_lane(T value, int lane) {
    return __shfl_sync(kAllLanes, value, lane);
}

// kChunks: of 32 dimensions.
template <typename T, int kChunks> struct TileMemory {
    Query queries[kTileQueries];
    uint4 numbers[kTileQueries][4 * kChunks + kQuarterPadding]; // of the queries
    unsigned seen[kTileWarps][kTileQueries];                    // a bit a key of the warp
    float largest[kTileWarps][kTileQueries], sums[kTileWarps][kTileQueries];
    float4 values[kTileWarps][8][kWarp]; // of 64 dimensions: warp's, quarter, lane
};

template <typename T, int kChunks>
__device__ void stage_queries(const AttendCall& call, const Query& mine, TileMemory<T, kChunks>& memory) {
    const int dim = call.cache.head_dim;
    for (int query = warp_of_thread(); query < kTileQueries; query += kTileWarps) {
        const int row = of_lane(mine.row, query), head = of_lane(mine.head, query);
        if (lane_of_thread() == query) memory.queries[query] = mine;
        const T* from = static_cast<const T*>(call.qkv) +
                        static_cast<std::size_t>(row < 0 ? 0 : row) * static_cast<std::size_t>(call.stride) +
                        static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
        T* to = reinterpret_cast<T*>(memory.numbers[query]);
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            const int d = 32 * c + lane_of_thread();
            to[d] = row >= 0 && d < dim ? from[d] : from_float<T>(0);
        }
    }
}

// Reads the keys or values that a tile's run sees in a layer: those of [begin, end).
template <typename T> struct CacheReader {
    const uint4 *own, *shared; // position 0 of the run's slot, and of the slot that holds its prefix
    int prefix_length, stride; // stride: uint4 a position
    int begin, end;

    __device__ CacheReader(const RowTable& table, const AttendCall& call, const void* cache, const Tile& tile,
                           int first_seen, int end_seen)
        : prefix_length(table.prefix_lengths[tile.run_begin]), stride(call.cache.head_stride / 8), begin(first_seen),
          end(end_seen) {
        const auto at = [&](const std::int32_t* slots) {
            const T* from = static_cast<const T*>(cache);
            return reinterpret_cast<const uint4*>(
                from + cache_at(call.cache, call.layer, slots[tile.run_begin], tile.kv_head, 0));
        };
        own = at(table.slots);
        shared = at(table.prefix_slots);
    }
    // 8 dimensions of a key. Where there are none some others: no query has them, or no result of them is kept.
    __device__ uint4 operator()(int key, int eighth) const {
        key = key < begin ? begin : key < end ? key : end - 1;
        return __ldg((key < prefix_length ? shared : own) + key * stride + (eighth < stride ? eighth : 0));
    }
};

// ---- the steps of a tile; lane 4 g + t has queries g and g + 8, index [2] or i below ----

__device__ inline int lane_g() {
    return lane_of_thread() / 4;
}
__device__ inline int lane_t() {
    return lane_of_thread() % 4;
}

// 8 keys a step: lane (g, t) reads of key g the dimensions 8 t .. 8 t + 7 of every 32.
template <typename T, int kChunks>
__device__ void load_keys(const CacheReader<T>& reader, int first_key, uint4 (&keys)[4][kChunks]) {
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
            keys[n][c] = reader(first_key + 8 * n + lane_g(), 4 * c + lane_t());
}

// scores [step][2 i + b]: of query i of the lane and key 2 t + b of the step.
template <typename T, int kChunks>
__device__ void multiply_keys(const TileMemory<T, kChunks>& memory, const uint4 (&keys)[4][kChunks],
                              float (&scores)[4][4]) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const uint4 low = memory.numbers[lane_g()][4 * c + lane_t()];
        const uint4 high = memory.numbers[lane_g() + 8][4 * c + lane_t()];
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const unsigned of_q[4] = {word_of(low, 2 * step), word_of(high, 2 * step), word_of(low, 2 * step + 1),
                                      word_of(high, 2 * step + 1)};
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const unsigned of_k[2] = {word_of(keys[n][c], 2 * step), word_of(keys[n][c], 2 * step + 1)};
                multiply_16x8x16<T>(scores[n], of_q, of_k);
            }
        }
    }
}

// Products become scores, minus infinity where a query does not see the key; shows the block the warp's largest.
template <typename T, int kChunks>
__device__ void finish_scores(const AttendCall& call, TileMemory<T, kChunks>& memory, int warp, int first_key,
                              float (&scores)[4][4]) {
    const unsigned seen[2] = {memory.seen[warp][lane_g()], memory.seen[warp][lane_g() + 8]};
    float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int i = c / 2, key = 8 * n + 2 * lane_t() + c % 2;
            const float score = score_of(call, scores[n][c], first_key + key, memory.queries[lane_g() + 8 * i].head);
            scores[n][c] = (seen[i] >> key & 1) != 0 ? score : -INFINITY;
            largest[i] = scores[n][c] > largest[i] ? scores[n][c] : largest[i];
        }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        for (int step = 1; step < 4; step *= 2) {
            const float other = __shfl_xor_sync(kAllLanes, largest[i], step);
            largest[i] = other > largest[i] ? other : largest[i];
        }
        if (lane_t() == 0) memory.largest[warp][lane_g() + 8 * i] = largest[i];
    }
}

template <typename T, int kChunks> __device__ float largest_of(const TileMemory<T, kChunks>& memory, int query) {
    float largest = -INFINITY;
    for (int warp = 0; warp < kTileWarps; ++warp)
        largest = memory.largest[warp][query] > largest ? memory.largest[warp][query] : largest;
    return largest;
}

// exp(score - largest of the block) as the left side of two steps of 16 keys; rests: what rounding has left out.
struct Weights {
    unsigned rounded[2][4], rests[2][4];
};

template <typename T, int kChunks>
__device__ Weights weigh(TileMemory<T, kChunks>& memory, int warp, const float (&scores)[4][4]) {
    const float largest[2] = {largest_of(memory, lane_g()), largest_of(memory, lane_g() + 8)};
    float sums[2] = {};
    Weights weights;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        float weight[4], rest[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            weight[c] = scores[n][c] == -INFINITY ? 0.0f : expf(scores[n][c] - largest[c / 2]);
            sums[c / 2] += weight[c];
            rest[c] = weight[c] - to_float(from_float<T>(weight[c]));
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            weights.rounded[n / 2][2 * (n % 2) + i] = pair_of<T>(weight[2 * i], weight[2 * i + 1]);
            weights.rests[n / 2][2 * (n % 2) + i] = pair_of<T>(rest[2 * i], rest[2 * i + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        for (int step = 1; step < 4; step *= 2)
            sums[i] += __shfl_xor_sync(kAllLanes, sums[i], step);
        if (lane_t() == 0) memory.sums[warp][lane_g() + 8 * i] = sums[i];
    }
    return weights;
}

// 16 keys a step: lane (g, t) reads of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9 the dimensions 8 g .. 8 g + 7 of 64.
template <typename T>
__device__ void load_values(const CacheReader<T>& reader, int first_key, int half, uint4 (&values)[2][4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int k = 0; k < 4; ++k)
            values[step][k] = reader(first_key + 16 * step + 2 * lane_t() + k % 2 + 8 * (k / 2), 8 * half + lane_g());
}

// sums [j][2 i + b]: of query i of the lane, dimension 16 t + 8 b + j of 64.
template <typename T>
__device__ void multiply_values(const Weights& weights, const uint4 (&values)[2][4], float (&sums)[8][4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const unsigned pick = j % 2 == 0 ? 0x5410u : 0x7632u; // dimension j of two keys
            const unsigned of_v[2] = {
                __byte_perm(word_of(values[step][0], j / 2), word_of(values[step][1], j / 2), pick),
                __byte_perm(word_of(values[step][2], j / 2), word_of(values[step][3], j / 2), pick)};
            multiply_16x8x16<T>(sums[j], weights.rounded[step], of_v);
            multiply_16x8x16<T>(sums[j], weights.rests[step], of_v);
        }
}

// A warp adds up an eighth of what all have shown, in the order of their keys: of a query a lane 4 of 64 dimensions.
template <typename T, int kChunks>
__device__ void store_parts(const AttendCall& call, const TileMemory<T, kChunks>& memory, int warp, int block,
                            int half) {
    const int number = lane_g() + 8 * (warp / 4), d = 64 * half + 16 * lane_t() + 4 * (warp % 4);
    const Query query = memory.queries[number];
    if (!query.meets_block || d >= call.cache.head_stride) return;
    float4 sum = {0, 0, 0, 0};
    for (int of = 0; of < kTileWarps; ++of) {
        const float4 term = memory.values[of][warp][lane_of_thread()];
        sum = {sum.x + term.x, sum.y + term.y, sum.z + term.z, sum.w + term.w};
    }
    float* part = part_of(call, query.row, query.head, block);
    *reinterpret_cast<float4*>(part + kPartHead + d) = sum;
    if (d > 0) return;
    part[0] = largest_of(memory, number);
    part[1] = 0;
    for (int of = 0; of < kTileWarps; ++of)
        part[1] += memory.sums[of][number];
}

// The parts of a tile's queries over a block of keys; all threads of a block.
template <typename T, int kChunks>
__device__ void attend_tile(const RowTable& table, const AttendCall& call, int block, const Tile& tile) {
    __shared__ TileMemory<T, kChunks> memory;
    const int warp = of_lane(warp_of_thread(), 0); // the compiler keeps nothing that follows from it from tile to tile
    const int first_key = block * kKeyBlock + warp * kWarpKeys;

    Query mine = {-1, 0, false}; // of lane % kTileQueries
    Reach reach = {call.max_keys, 0, -1, nullptr};
    if (const int query = tile.number * kTileQueries + lane_of_thread() % kTileQueries; query < tile.n_queries()) {
        mine.row = tile.run_begin + query / tile.heads.count;
        mine.head = tile.heads.begin + query % tile.heads.count;
        reach = reach_of(table, mine.row, call.window);
        mine.meets_block = reach.meets(block);
    }
    const int begin = __reduce_min_sync(kAllLanes, reach.begin), end = __reduce_max_sync(kAllLanes, reach.end);
    if (!Reach{begin, end, -1, nullptr}.meets(block)) return; // the same on all threads

    // Small heads' values are under way with the keys, large heads' as soon as the keys have left their registers.
    constexpr int kHalves = kChunks / 2; // of 64 dimensions
    uint4 keys[4][kChunks], values[2][4];
    load_keys<T, kChunks>({table, call, call.cache.keys, tile, begin, end}, first_key, keys);
    const auto load_half = [&](int half) {
        load_values<T>({table, call, call.cache.values, tile, begin, end}, first_key, half, values);
    };
    if constexpr (kHalves == 1) load_half(0);
    stage_queries<T, kChunks>(call, mine, memory);
    if (lane_of_thread() < kTileQueries) memory.seen[warp][lane_of_thread()] = reach.seen(first_key);
    __syncthreads();
    float scores[4][4] = {};
    multiply_keys<T, kChunks>(memory, keys, scores);
    finish_scores(call, memory, warp, first_key, scores);

    if constexpr (kHalves > 1) load_half(0);
    __syncthreads(); // largest
    const Weights weights = weigh(memory, warp, scores);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
        float sums[8][4] = {};
        multiply_values<T>(weights, values, sums);
        if (half > 0) __syncthreads(); // those before have been read
#pragma unroll
        for (int c = 0; c < 4; ++c)
#pragma unroll
            for (int b = 0; b < 2; ++b)
                memory.values[warp][2 * c + b][lane_of_thread()] = {sums[4 * b][c], sums[4 * b + 1][c],
                                                                    sums[4 * b + 2][c], sums[4 * b + 3][c]};
        if (half + 1 < kHalves) load_half(half + 1);
        __syncthreads(); // values, sums
        store_parts(call, memory, warp, block, half);
    }
}

// Block x: keys. Block y: a key head, and of its tiles every shares-th.
template <typename T, int kChunks>
__global__ void __launch_bounds__(kTileWarps* kWarp, kChunks <= 4 ? 2 : 1)
    attend_tiles(RowTable table, AttendCall call, int shares) {
    __shared__ Tile tile;
    if (warp_of_thread() == 0) {
        const int kv_head = static_cast<int>(blockIdx.y) / shares, share = static_cast<int>(blockIdx.y) % shares;
        const Tile first = find_tile(table, {kv_head, query_heads_of(call, kv_head), 0, 0, share});
        if (lane_of_thread() == 0) tile = first;
    }
    __syncthreads();
    while (tile.run_begin < table.rows) {
        attend_tile<T, kChunks>(table, call, static_cast<int>(blockIdx.x), tile);
        __syncthreads(); // all are done with the tile
        if (warp_of_thread() == 0) {
            Tile next = tile;
            next.number += shares;
            next = find_tile(table, next);
            if (lane_of_thread() == 0) tile = next;
        }
        __syncthreads();
    }
}

template <typename T> void launch_attention(void* stream, const RowTable& table, const AttendCall& call) {
    const int blocks = key_blocks(call.max_keys), n_heads = call.n_query_heads, n_kv_heads = call.cache.n_kv_heads;
    const int max_group = n_heads % n_kv_heads == 0 ? n_heads / n_kv_heads : n_heads;
    // Tiles of a key head where every row is a run of its own. Long contexts fill the device without sharing them out;
    // then a block takes all, and all but the first find its keys in the caches next to it.
    const int max_tiles = table.rows * static_cast<int>(blocks_for(static_cast<std::size_t>(max_group), kTileQueries));
    const int shares = std::clamp(kFillingBlocks / (blocks * n_kv_heads), 1, max_tiles);
    const Grid grid = {dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(n_kv_heads * shares)),
                       kTileWarps * kWarp};
    auto* kernel = call.cache.head_dim <= 64    ? attend_tiles<T, 2>
                   : call.cache.head_dim <= 128 ? attend_tiles<T, 4>
                                                : attend_tiles<T, 8>;
    launch(stream, grid, kernel, table, call, shares);
}

} // namespace

void attend_tensor_cores(void* stream, const RowTable& table, const AttendCall& call) {
    call.cache.type == NumberType::bfloat16 ? launch_attention<__nv_bfloat16>(stream, table, call)
                                            : launch_attention<__half>(stream, table, call);
}

} // namespace entrodraft::model::gpu
