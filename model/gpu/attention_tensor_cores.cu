// Attention over 16-bit caches on tensor cores: what bounds a pass over long contexts, by reading the cache once.
//
// A block of threads takes kKeyBlock keys of a key head, and of the queries of that head (every row and query head that
// reads it) 16 at a time, a tile: the 16 rows of a tensor-core step. Rows of one text that follow each other share
// their keys, so a tile holds queries of one such run; in blocks that reach into a tree, where each row has ancestors
// of its own, those of one row. Each warp has 32 of the keys, all loads of which are under way before the first is
// used. As in linear.cu, a quad of lanes reads 64 bytes of a key that lie together, and keys and queries agree on which
// dimension is where inside a step; values are read 16 bytes a lane and brought into a step's order by byte
// permutations. Weights go into the product as two numbers, rounded and what rounding has left out, so that no more
// than the float32 sums' rounding is lost.
//
// A query is a row of the step alone, its keys lie in the same block, warp and step whatever else is in the tile, and
// keys that it does not see weigh 0, whatever their values: so its bits do not depend on how queries are grouped.
#include "model/gpu/attention_steps.cuh"

#include <algorithm>
#include <type_traits>

namespace entrodraft::model::gpu {

namespace {

constexpr int kTileWarps = 8;
constexpr int kWarpKeys = kKeyBlock / kTileWarps; // 4 steps of 8 keys for scores, 2 of 16 for values
constexpr int kFillingBlocks = 512;               // blocks of threads that keep a large device busy

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

// 16 queries of a run, numbered row by row; fewer in the last tile of rows that share tiles.
struct Tile {
    int kv_head;
    QueryHeads heads;
    int run_begin, run_end; // rows
    bool is_by_row;         // no two rows share a tile: they have the block's keys in different places
    int number;             // of the run's tiles
    __device__ int rows_together() const { return is_by_row ? 1 : run_end - run_begin; }
    __device__ int queries_together() const { return rows_together() * heads.count; }
    __device__ int tiles_together() const { return (queries_together() + kTileQueries - 1) / kTileQueries; }
    __device__ int n_tiles() const { return (is_by_row ? run_end - run_begin : 1) * tiles_together(); }
    __device__ int first_row() const { return run_begin + number / tiles_together(); }      // of rows that share tiles
    __device__ int first_query() const { return number % tiles_together() * kTileQueries; } // of theirs
};

// From the tile it names on, the first of a block of keys that is there; an empty run behind the last row.
__device__ Tile find_tile(const RowTable& table, int block, Tile tile) {
    while (tile.run_begin < table.rows) {
        tile.run_end = end_of_run(table, tile.run_begin);
        const int mask_begin = table.mask_begins[tile.run_begin];
        tile.is_by_row = mask_begin >= 0 && mask_begin < (block + 1) * kKeyBlock;
        const bool is_padding = table.slots[tile.run_begin] < 0;
        const int n_tiles = is_padding ? 0 : tile.n_tiles();
        if (tile.number < n_tiles) return tile;
        tile.number -= n_tiles;
        tile.run_begin = tile.run_end;
    }
    return tile;
}

struct Query {
    int row; // negative: none
    int head;
    int position;
    bool meets_block; // some key of it
};

// kChunks: of 32 dimensions.
template <typename T, int kChunks> struct TileMemory {
    Query queries[kTileQueries];
    StagedQueries<kChunks> numbers;
    unsigned seen[kTileWarps][kTileQueries]; // a bit a key of the warp
    float largest[kTileWarps][kTileQueries], sums[kTileWarps][kTileQueries];
    float4 values[kTileWarps][8][kWarp]; // of 64 dimensions: warp's, quarter, lane
};

template <typename T, int kChunks>
__device__ void stage_queries(const AttendCall& call, const Query& mine, TileMemory<T, kChunks>& memory) {
    for (int query = warp_of_thread(); query < kTileQueries; query += kTileWarps) {
        if (lane_of_thread() == query) memory.queries[query] = mine;
        stage_query<T, kChunks>(call, of_lane(mine.row, query), of_lane(mine.head, query), query, memory.numbers);
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
            const Query& query = memory.queries[lane_g() + 8 * i];
            const float score = score_of(call, scores[n][c], first_key + key, query.head, query.position);
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

// exp(score - largest of the block), rounded, and what rounding has left out.
template <typename T, int kChunks>
__device__ void weigh(TileMemory<T, kChunks>& memory, int warp, const float (&scores)[4][4],
                      StepWeights (&weights)[2]) {
    const float largest[2] = {largest_of(memory, lane_g()), largest_of(memory, lane_g() + 8)};
    float sums[2] = {};
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
            weights[0].pairs[n / 2][2 * (n % 2) + i] = pair_of<T>(weight[2 * i], weight[2 * i + 1]);
            weights[1].pairs[n / 2][2 * (n % 2) + i] = pair_of<T>(rest[2 * i], rest[2 * i + 1]);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        for (int step = 1; step < 4; step *= 2)
            sums[i] += __shfl_xor_sync(kAllLanes, sums[i], step);
        if (lane_t() == 0) memory.sums[warp][lane_g() + 8 * i] = sums[i];
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

// Merges the queries whose last part the tile has stored; a warp two of them.
template <typename T, int kChunks>
__device__ void merge_complete(const RowTable& table, const AttendCall& call, const TileMemory<T, kChunks>& memory,
                               int warp) {
    static_assert(kTileQueries == 2 * kTileWarps);
    const Query query = memory.queries[warp + kTileWarps * (lane_of_thread() % 2)];
    BlockRange blocks = {0, 0};
    if (query.meets_block) blocks = reach_of(table, query.row, call.window).blocks();
    const bool is_last = lane_of_thread() < 2 && query.meets_block && is_last_part(call, query.row, query.head, blocks);
    const unsigned complete = __ballot_sync(kAllLanes, is_last);
    __syncwarp(); // what the two lanes have seen of other blocks all lanes see
    for (int i = 0; i < 2; ++i)
        if ((complete >> i & 1) != 0)
            merge_parts_of_query<T, (kChunks + 3) / 4>(call, of_lane(query.row, i), of_lane(query.head, i),
                                                       {of_lane(blocks.first, i), of_lane(blocks.end, i)});
}

// The parts of a tile's queries over a block of keys; all threads of a block.
template <typename T, int kChunks>
__device__ void attend_tile(const RowTable& table, const AttendCall& call, int block, const Tile& tile) {
    __shared__ TileMemory<T, kChunks> memory;
    const int warp = of_lane(warp_of_thread(), 0); // the compiler keeps nothing that follows from it from tile to tile
    const int first_key = block * kKeyBlock + warp * kWarpKeys;

    const int first_row = tile.first_row();
    Query mine = {-1, 0, 0, false}; // of lane % kTileQueries
    Reach reach = {call.cache.capacity, 0};
    if (const int query = tile.first_query() + lane_of_thread() % kTileQueries; query < tile.queries_together()) {
        mine.row = first_row + query / tile.heads.count;
        mine.head = tile.heads.begin + query % tile.heads.count;
        mine.position = position_of(table, call, mine.row);
        reach = reach_of(table, mine.row, call.window);
        mine.meets_block = reach.meets(block);
    }
    const int begin = __reduce_min_sync(kAllLanes, reach.begin), end = __reduce_max_sync(kAllLanes, reach.end);
    if (!Reach{begin, end}.meets(block)) return; // the same on all threads
    const int place = place_of(table, first_row, nearest_key(first_key + lane_of_thread(), begin, end));

    // Small heads' values are under way with the keys, large heads' as soon as the keys have left their registers.
    constexpr int kHalves = kChunks / 2; // of 64 dimensions
    uint4 keys[4][kChunks], values[2][4];
    load_keys<T>({table, call, call.cache.keys, first_row, tile.kv_head, place}, 0, keys);
    const auto load_half = [&](int half) {
        load_values<T>({table, call, call.cache.values, first_row, tile.kv_head, place}, half, values);
    };
    if constexpr (kHalves == 1) load_half(0);
    stage_queries<T, kChunks>(call, mine, memory);
    if (lane_of_thread() < kTileQueries) memory.seen[warp][lane_of_thread()] = reach.seen(first_key);
    __syncthreads();
    float scores[4][4] = {};
    multiply_keys<T>(memory.numbers, keys, scores);
    finish_scores(call, memory, warp, first_key, scores);

    if constexpr (kHalves > 1) load_half(0);
    __syncthreads(); // largest
    StepWeights weights[2];
    weigh(memory, warp, scores, weights);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
        const unsigned taken_out = take_out_non_finite<T>(values);
        float sums[8][4] = {};
        multiply_values<T>(weights, values, sums);
        spoil_sums([&](int i) { return memory.seen[warp][lane_g() + 8 * i]; }, taken_out, sums);
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
    __threadfence();
    __syncthreads(); // parts
    merge_complete<T, kChunks>(table, call, memory, warp);
}

// Blocks of keys that some row sees, at least one, and the first of them that reaches into a tree, n_blocks where none
// does: there are more tiles from there on.
struct KeyBlocks {
    int first_by_row, n_blocks;
};
__device__ KeyBlocks blocks_of_rows(const RowTable& table) {
    int n_keys = 1, first_in_tree = 0x7fffffff;
    for (int row = lane_of_thread(); row < table.rows; row += kWarp) {
        const int mask_begin = table.mask_begins[row];
        n_keys = table.n_keys[row] > n_keys ? table.n_keys[row] : n_keys;
        first_in_tree = mask_begin >= 0 && mask_begin < first_in_tree ? mask_begin : first_in_tree;
    }
    const int n_blocks = blocks_of_keys(__reduce_max_sync(kAllLanes, n_keys));
    const int first_by_row = __reduce_min_sync(kAllLanes, first_in_tree) / kKeyBlock;
    return {first_by_row < n_blocks ? first_by_row : n_blocks, n_blocks};
}

// What a block of threads is at, in shared memory: no register is taken while a tile is computed.
struct Work {
    int item;   // of all there is: a block of keys of a key head, with every shares-th of the head's tiles
    int block;  // of keys; negative: none is left
    int shares; // of the tiles
    Tile tile;
};

// By a warp.
__device__ void find_work(const RowTable& table, const AttendCall& call, int max_tiles, int item, Work& work) {
    const int n_kv_heads = call.cache.n_kv_heads, kv_head = item % n_kv_heads;
    const auto [first_by_row, n_blocks] = blocks_of_rows(table);
    const int n_by_row = n_blocks - first_by_row;
    // Long contexts fill the device without sharing tiles out; then a block takes all, and all but the first find its
    // keys in the caches next to it. What reaches into trees is shared out as if there were no more.
    const auto shares_of = [&](int blocks) {
        const int wanted = kFillingBlocks / (blocks * n_kv_heads);
        return wanted < 1 ? 1 : wanted < max_tiles ? wanted : max_tiles;
    };
    const int of_all = shares_of(n_blocks), of_trees = n_by_row > 0 ? shares_of(n_by_row) : of_all;
    int number = item / n_kv_heads, block = number % n_blocks, share = number / n_blocks;
    if (share >= of_all && n_by_row > 0) { // the further shares of what reaches into trees
        number -= of_all * n_blocks;
        block = first_by_row + number % n_by_row;
        share = of_all + number / n_by_row;
    }
    const Tile tile = find_tile(table, block, {kv_head, query_heads_of(call, kv_head), 0, 0, false, share});
    if (lane_of_thread() == 0)
        work = {item, share < of_trees ? block : -1, block < first_by_row ? of_all : of_trees, tile};
}

__device__ void find_next_tile(const RowTable& table, const AttendCall& call, int max_tiles, Work& work) {
    Tile next = work.tile;
    next.number += work.shares;
    next = find_tile(table, work.block, next);
    if (next.run_begin >= table.rows)
        find_work(table, call, max_tiles, work.item + static_cast<int>(gridDim.x), work);
    else if (lane_of_thread() == 0)
        work.tile = next;
}

// How much work there is the table says, so that a graph serves texts of any length.
template <typename T, int kChunks>
__global__ void __launch_bounds__(kTileWarps* kWarp, kChunks <= 4 ? 2 : 1)
    attend_tiles(RowTable table, AttendCall call, int max_tiles) {
    begin_kernel();
    __shared__ Work work;
    if (warp_of_thread() == 0) find_work(table, call, max_tiles, static_cast<int>(blockIdx.x), work);
    __syncthreads();
    while (work.block >= 0) {
        if (work.tile.run_begin < table.rows) attend_tile<T, kChunks>(table, call, work.block, work.tile);
        __syncthreads(); // all are done with the tile
        if (warp_of_thread() == 0) find_next_tile(table, call, max_tiles, work);
        __syncthreads();
    }
}

template <typename T> void launch_attention(void* stream, const RowTable& table, const AttendCall& call) {
    const int n_heads = call.n_query_heads, n_kv_heads = call.cache.n_kv_heads;
    const int max_group = n_heads % n_kv_heads == 0 ? n_heads / n_kv_heads : n_heads;
    // Of a key head, where every row is a run of its own.
    const int max_tiles = table.rows * static_cast<int>(blocks_for(static_cast<std::size_t>(max_group), kTileQueries));
    const int max_items = key_blocks(call.cache.capacity) * n_kv_heads * max_tiles;
    const Grid grid = {static_cast<unsigned>(std::min(max_items, kFillingBlocks)), kTileWarps * kWarp};
    auto* kernel = call.cache.head_dim <= 64    ? attend_tiles<T, 2>
                   : call.cache.head_dim <= 128 ? attend_tiles<T, 4>
                                                : attend_tiles<T, 8>;
    launch(stream, grid, kernel, table, call, max_tiles);
}

} // namespace

void attend_tensor_cores(void* stream, const RowTable& table, const AttendCall& call) {
    call.cache.type == NumberType::bfloat16 ? launch_attention<__nv_bfloat16>(stream, table, call)
                                            : launch_attention<__half>(stream, table, call);
}

} // namespace entrodraft::model::gpu
