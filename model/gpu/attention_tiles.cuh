// Shares the attention of few rows among blocks of threads. Each block takes kKeyBlock keys of a key head, and that
// head's queries 16 at a time. These 16 queries are a tile.
//
// Consecutive rows of one text share their keys, so a tile has queries of one such run of rows. In blocks of keys that
// reach into a tree, each row has its own ancestors, so there a tile has queries of one row only. Included by
// attention_tensor_cores.cu and attention_latent.cu.
#pragma once

#include "model/gpu/attention_steps.cuh"

#include <algorithm>

namespace entrodraft::model::gpu {

inline constexpr int kTileWarps = 8;
inline constexpr int kTileThreads = kTileWarps * kWarp;

// Columns of the rows' table in shared memory, since they are read again and again, each time after another read.
struct SharedColumns {
    std::int32_t slots[kMaxAttendRows], n_keys[kMaxAttendRows], prefix_slots[kMaxAttendRows],
        prefix_lengths[kMaxAttendRows], mask_begins[kMaxAttendRows];
};

// Returns the table with these columns in place of its own. All threads call it; a barrier must follow.
__device__ inline RowTable with_columns(RowTable table, SharedColumns& columns) {
#pragma unroll 1
    for (int row = static_cast<int>(threadIdx.x); row < table.rows; row += kTileThreads) {
        columns.slots[row] = table.slots[row];
        columns.n_keys[row] = table.n_keys[row];
        columns.prefix_slots[row] = table.prefix_slots[row];
        columns.prefix_lengths[row] = table.prefix_lengths[row];
        columns.mask_begins[row] = table.mask_begins[row];
    }
    table.slots = columns.slots;
    table.n_keys = columns.n_keys;
    table.prefix_slots = columns.prefix_slots;
    table.prefix_lengths = columns.prefix_lengths;
    table.mask_begins = columns.mask_begins;
    return table;
}

// Returns the end of the run from `begin` on: its rows read the same keys.
__device__ inline int end_of_run(const RowTable& table, int begin) {
    for (int first = begin + 1;; first += kWarp) {
        const int row = first + lane_of_thread();
        const bool differs = row >= table.rows || table.slots[row] != table.slots[begin] ||
                             table.prefix_slots[row] != table.prefix_slots[begin] ||
                             table.prefix_lengths[row] != table.prefix_lengths[begin];
        const unsigned ends = __ballot_sync(kAllLanes, differs);
        if (ends != 0) return first + __ffs(static_cast<int>(ends)) - 1;
    }
}

// 16 queries of a run, numbered row by row. The last tile of rows that share tiles may have fewer.
struct Tile {
    int kv_head;
    QueryHeads heads;
    int run_begin, run_end; // rows
    int number;             // among the run's tiles
    // The rows that share tiles with this one and read the same keys, and the number of their first tile.
    int first_row, n_rows, first_tile;
    __device__ int queries_together() const { return n_rows * heads.count; }
    __device__ int tiles_together() const { return (queries_together() + kTileQueries - 1) / kTileQueries; }
    __device__ int end_together() const { return first_tile + tiles_together(); }
    __device__ int first_query() const { return (number - first_tile) * kTileQueries; } // among those rows' queries
    __device__ int n_queries() const {                                                  // negative or 0: none
        const int left = queries_together() - first_query();
        return left < kTileQueries ? left : kTileQueries;
    }
};

// Returns the first tile of a block of keys that exists, from the given one on; an empty run after the last row.
__device__ inline Tile find_tile(const RowTable& table, int block, Tile tile) {
    while (tile.run_begin < table.rows) {
        tile.run_end = end_of_run(table, tile.run_begin);
        const int mask_begin = table.mask_begins[tile.run_begin], n_rows = tile.run_end - tile.run_begin;
        // If so, no two rows share a tile: their keys of this block lie in different places.
        const bool is_by_row = mask_begin >= 0 && mask_begin < (block + 1) * kKeyBlock;
        const bool is_padding = table.slots[tile.run_begin] < 0;
        tile.n_rows = is_by_row ? 1 : n_rows;
        const int together = tile.tiles_together(), n_tiles = is_padding ? 0 : is_by_row ? n_rows * together : together;
        if (tile.number < n_tiles) {
            const int before = tile.number / together;
            tile.first_row = tile.run_begin + before;
            tile.first_tile = before * together;
            return tile;
        }
        tile.number -= n_tiles;
        tile.run_begin = tile.run_end;
    }
    return tile;
}

struct Query {
    int row = -1; // negative: none
    int head = 0;
    int position = 0;
    Reach reach = {0, 0};
};

__device__ inline Query query_of(const RowTable& table, const AttendCall& call, const Tile& tile, int number) {
    if (number >= tile.n_queries()) return {};
    const int query = tile.first_query() + number, row = tile.first_row + query / tile.heads.count;
    return {row, tile.heads.begin + query % tile.heads.count, position_of(table, call, row),
            reach_of(table, row, call.window)};
}

// Returns 8 dimensions of a query from d on, zeros where there are none.
template <typename T> __device__ uint4 eighth_of_query(const AttendCall& call, const Query& query, int d) {
    if (query.row < 0) return {0, 0, 0, 0};
    const T* from = static_cast<const T*>(call.qkv) +
                    static_cast<std::size_t>(query.row) * static_cast<std::size_t>(call.stride) +
                    static_cast<std::size_t>(query.head) * static_cast<std::size_t>(call.cache.head_dim);
    return eighth_at(from, d, call.cache.head_dim);
}

// The places of 32 keys of a layer, one per lane, in units of 8 dimensions. Their values have the same places.
struct KeyPlaces {
    std::size_t begin; // place 0 of the rows' slot
    int offset;        // from there to the key of the lane
    int stride;        // of a place
    __device__ int offset_of(int key) const { return of_lane(offset, key); }
    // Past the end of a key's dimensions, others are read: their results are not kept.
    __device__ int eighth(int i) const { return i < stride ? i : 0; }
};

// `row` is one of the rows that share the keys.
__device__ inline KeyPlaces key_places(const RowTable& table, const AttendCall& call, int row, int kv_head, int place) {
    const auto begin_of = [&](int slot) { return cache_at(call.cache, call.layer, slot, kv_head, 0) / 8; };
    const int stride = call.cache.head_stride / 8;
    const std::size_t begin = begin_of(table.slots[row]);
    int offset = place * stride;
    if (place < table.prefix_lengths[row]) // a layer's cache has less than 2^31 units
        offset += static_cast<int>(static_cast<std::ptrdiff_t>(begin_of(table.prefix_slots[row]) - begin));
    return {begin, offset, stride};
}

// The current work of a block of threads. It lies in shared memory, so it takes no registers while a tile is computed.
struct Work {
    int item;   // number: a block of keys of a key head, with every shares-th of the head's tiles
    int block;  // block of keys; negative: none is left
    int shares; // into which the tiles are divided
    Tile tile;
};

// The number of key blocks that some row sees, at least one, and the first block that reaches into a tree. From there
// on there are more tiles. first_by_row is n_blocks if no block reaches into a tree.
struct KeyBlocks {
    int first_by_row, n_blocks;
};
__device__ inline KeyBlocks blocks_of_rows(const RowTable& table) {
    int n_keys = 1, first_in_tree = 0x7fffffff;
#pragma unroll 1
    for (int row = lane_of_thread(); row < table.rows; row += kWarp) {
        const int mask_begin = table.mask_begins[row];
        n_keys = table.n_keys[row] > n_keys ? table.n_keys[row] : n_keys;
        first_in_tree = mask_begin >= 0 && mask_begin < first_in_tree ? mask_begin : first_in_tree;
    }
    const int n_blocks = blocks_of_keys(__reduce_max_sync(kAllLanes, n_keys));
    const int first_by_row = __reduce_min_sync(kAllLanes, first_in_tree) / kKeyBlock;
    return {first_by_row < n_blocks ? first_by_row : n_blocks, n_blocks};
}

// The number of blocks of threads that the device runs at once, and of tiles of a key head if every row is its own run.
struct Sharing {
    int at_once, max_tiles;
};

// Finds the work of number `item`. A warp calls it.
__device__ inline void find_work(const RowTable& table, const AttendCall& call, const Sharing& sharing, int item,
                                 Work& work) {
    const int n_kv_heads = call.cache.n_kv_heads, kv_head = item % n_kv_heads;
    const auto [first_by_row, n_blocks] = blocks_of_rows(table);
    const int n_by_row = n_blocks - first_by_row;
    // Long contexts fill the device without shared tiles. Blocks that reach into trees get as many shares as if there
    // were only those blocks.
    const auto shares_of = [&](int blocks) {
        const int wanted = sharing.at_once / (blocks * n_kv_heads);
        return wanted < 1 ? 1 : wanted < sharing.max_tiles ? wanted : sharing.max_tiles;
    };
    const int of_all = shares_of(n_blocks), of_trees = n_by_row > 0 ? shares_of(n_by_row) : of_all;
    int number = item / n_kv_heads, block = number % n_blocks, share = number / n_blocks;
    if (share >= of_all && n_by_row > 0) { // the further shares of blocks that reach into trees
        number -= of_all * n_blocks;
        block = first_by_row + number % n_by_row;
        share = of_all + number / n_by_row;
    }
    const Tile tile = find_tile(table, block, {kv_head, query_heads_of(call, kv_head), 0, 0, share, 0, 0, 0});
    if (lane_of_thread() == 0)
        work = {item, share < of_trees ? block : -1, block < first_by_row ? of_all : of_trees, tile};
}

// Finds the work after all tiles that read the same keys as `work`.
__device__ inline void find_next_work(const RowTable& table, const AttendCall& call, const Sharing& sharing,
                                      const Work& work, Work& next) {
    Tile tile = work.tile;
    if (tile.run_begin < table.rows) {
        const int left = tile.end_together() - tile.number;
        tile.number += (left + work.shares - 1) / work.shares * work.shares;
        tile = find_tile(table, work.block, tile);
    }
    if (tile.run_begin >= table.rows)
        find_work(table, call, sharing, work.item + static_cast<int>(gridDim.x), next);
    else if (lane_of_thread() == 0)
        next = {work.item, work.block, work.shares, tile};
}

// The keys that any of the rows of a work sees, and whether one of the rows has several parts. Each warp calls it.
struct WorkReach {
    Reach reach;
    bool has_parts;
};
__device__ inline WorkReach reach_of_work(const RowTable& table, const AttendCall& call, const Work& work) {
    const int first_row = work.tile.first_row;
    Reach reach = {call.cache.capacity, 0};
    bool has_parts = false;
#pragma unroll 1
    for (int row = first_row + lane_of_thread(); row < first_row + work.tile.n_rows; row += kWarp) {
        const Reach of_row = reach_of(table, row, call.window);
        reach.begin = of_row.begin < reach.begin ? of_row.begin : reach.begin;
        reach.end = of_row.end > reach.end ? of_row.end : reach.end;
        has_parts = has_parts || of_row.blocks().size() > 1;
    }
    reach = {__reduce_min_sync(kAllLanes, reach.begin), __reduce_max_sync(kAllLanes, reach.end)};
    return {reach, __any_sync(kAllLanes, has_parts) != 0};
}

// Merges the parts that a work's tiles complete, with values of 128 kFours dimensions. All threads call it, after
// __threadfence() and a barrier.
template <typename T, int kFours>
__device__ void merge_work(const RowTable& table, const AttendCall& call, const Work& work, int warp) {
    const Tile& first_tile = work.tile;
    const int n_tiles = (first_tile.end_together() - first_tile.number + work.shares - 1) / work.shares;
    for (int first = 0; first < n_tiles * kTileQueries; first += kTileThreads) {
        const int i = first + warp + kTileWarps * lane_of_thread(); // spreads a tile's queries over the warps
        Query query;
        if (i < n_tiles * kTileQueries) {
            Tile tile = first_tile;
            tile.number += i / kTileQueries * work.shares;
            query = query_of(table, call, tile, i % kTileQueries);
        }
        const BlockRange blocks = query.reach.blocks();
        if (!query.reach.meets(work.block) || blocks.size() == 1) query.row = -1; // nothing to merge
        merge_complete<T, kFours>(call, query.row, query.head, blocks, work.block);
    }
}

// Does all work. The table says how much there is, so a graph serves texts of any length. BlockOfKeys does the work of
// a block of keys; its attend() returns whether it stored parts.
template <typename T, int kFours, typename BlockOfKeys, typename Memory>
__device__ void attend_all(const RowTable& of_call, const AttendCall& call, const Sharing& sharing, Memory& memory) {
    begin_kernel();
    __shared__ SharedColumns columns;
    // Used in turn: while some warps merge one work's parts, others may have stored the work after the next.
    __shared__ Work works[3];
    const RowTable table = with_columns(of_call, columns);
    __syncthreads();
    if (warp_of_thread() == 0) find_work(table, call, sharing, static_cast<int>(blockIdx.x), works[0]);
    __syncthreads();
    for (int turn = 0; works[turn].block >= 0; turn = (turn + 1) % 3) {
        const Work& work = works[turn];
        const int warp = of_lane(warp_of_thread(), 0); // the compiler keeps nothing that follows from it
        BlockOfKeys keys = {table, call, memory, work, warp};
        const bool has_parts = work.tile.run_begin < table.rows && keys.attend();
        if (has_parts) __threadfence();
        if (warp == 0) find_next_work(table, call, sharing, work, works[(turn + 1) % 3]);
        __syncthreads(); // parts and the next work are there, and all have finished the tiles
        if (has_parts) merge_work<T, kFours>(table, call, work, warp);
    }
}

// For blocks of threads, `together` of which run on a multiprocessor at once.
inline Sharing sharing_of(const RowTable& table, const AttendCall& call, int together) {
    const int n_heads = call.n_query_heads, n_kv_heads = call.cache.n_kv_heads;
    const int max_group = n_heads % n_kv_heads == 0 ? n_heads / n_kv_heads : n_heads;
    return {multiprocessors() * together,
            table.rows * static_cast<int>(blocks_for(static_cast<std::size_t>(max_group), kTileQueries))};
}
inline unsigned n_blocks_of(const AttendCall& call, const Sharing& sharing) {
    const int max_items = key_blocks(call.cache.capacity) * call.cache.n_kv_heads * sharing.max_tiles;
    return static_cast<unsigned>(std::min(max_items, sharing.at_once));
}

} // namespace entrodraft::model::gpu
