// Attention of a prompt's chunk over 16-bit caches: many rows of one text, which all read the same keys.
//
// A block of threads takes 64 queries of a key head, row by row, 16 in each warp. It goes through their keys in steps
// of 64, with a running maximum and sum; only the result is written. While a step is computed, keys and values of later
// steps are copied into shared memory. So keys are read from the second-level cache once per 64 queries (64 operations
// per byte), and from shared memory once per 16 (16 operations per byte). (attention_tensor_cores.cu, made for few
// rows, splits the keys into parts of 256. Here that would read keys once per 16 queries, and write and reread the
// parts' results.) The product takes weights rounded to the cache's type.
//
// Each query has a row of the tensor-core step to itself, and steps begin at multiples of 64 keys. A step in which a
// query sees no key leaves its sums unchanged. So the bits of a query's result depend only on its own keys.
#include "model/gpu/attention_steps.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kPromptWarps = 4;
constexpr int kPromptThreads = kPromptWarps * kWarp;
constexpr int kBlockQueries = kPromptWarps * kTileQueries;
constexpr int kMaxPromptHead = 128; // dimensions that a warp's registers hold
constexpr int kStepKeys = 64;
constexpr int kScoreSteps = kStepKeys / 8;  // tensor-core steps of a dimension's scores
constexpr int kValueParts = kStepKeys / 32; // 32 keys each, as multiply_values() takes them

// Keys or values of a step. A unit is 16 bytes, 8 dimensions.
template <int kChunks> using KeyTile = uint4[kStepKeys][4 * kChunks];

// Returns the place of a key's unit in a tile. The 8 lanes that read together ask for 4 units of 2 keys (for scores) or
// for 2 units of every other of 8 keys (for values). So no two of them share a bank.
__device__ inline int unit_in_tile(int key, int unit) {
    return unit ^ (key & 6) ^ (4 * (key & 1));
}

// Copies keys and values of a layer for a block. Each thread copies one unit of some keys of every tile.
template <typename T, int kChunks> struct TileCopier {
    static constexpr int kUnits = 4 * kChunks, kKeysAtOnce = kPromptThreads / kUnits;
    static_assert(kKeysAtOnce % 8 == 0, "unit_in_tile() is the same for all keys of a thread");
    const uint4 *keys, *values; // place 0 of the slot itself
    int stride, unit;           // units per place; the thread's unit
    int prefix_length, prefix;  // keys that another slot holds; distance in one layer from the own slot to that slot
    int last_key;               // read in place of later keys, which no query sees

    // `row` is one of the rows that share the keys; the keys end at `end`.
    __device__ TileCopier(const RowTable& table, const AttendCall& call, int row, int kv_head, int end) {
        const CachePlaces<T> places(table, call, call.cache.keys, row, kv_head);
        keys = places.own;
        values = CachePlaces<T>(table, call, call.cache.values, row, kv_head).own;
        stride = call.cache.head_stride / 8;
        unit = static_cast<int>(threadIdx.x) % kUnits < stride ? static_cast<int>(threadIdx.x) % kUnits : 0;
        prefix_length = table.prefix_lengths[row];
        prefix = static_cast<int>(places.shared - places.own);
        last_key = end - 1;
    }
    // Starts to copy a tile of `from`, the keys or the values, beginning at key `first`.
    __device__ void start(const uint4* from, int first, KeyTile<kChunks>& tile) const {
        const int thread = static_cast<int>(threadIdx.x), of_tile = thread / kUnits;
        uint4* to = &tile[of_tile][unit_in_tile(of_tile, thread % kUnits)];
#pragma unroll
        for (int i = 0; i < kStepKeys / kKeysAtOnce; ++i) {
            const int key = first + of_tile + i * kKeysAtOnce, place = key < last_key ? key : last_key;
            copy_async(to + i * kKeysAtOnce * kUnits,
                       from + (place * stride + unit + (place < prefix_length ? prefix : 0)));
        }
    }
};

// Returns the row of a key head's query of this number; negative if there is none.
__device__ inline int row_of_query(const RowTable& table, const QueryHeads& heads, int query) {
    if (query >= table.rows * heads.count) return -1;
    const int row = query / heads.count;
    return table.slots[row] < 0 ? -1 : row;
}
__device__ inline Reach reach_of_query(const RowTable& table, const AttendCall& call, int row) {
    return row < 0 ? Reach{call.cache.capacity, 0} : reach_of(table, row, call.window);
}

// The lane's two queries.
struct QueryPair {
    int heads[2], positions[2];
    Reach reaches[2];          // ends at 0 if there is no query
    float largest[2], sums[2]; // of scores; of this lane's weights
};

// Loads the lane's part of its queries, in the order that keys have in a tile.
template <typename T, int kChunks>
__device__ void load_query(const AttendCall& call, int row, int head, uint4 (&query)[kChunks]) {
    const int dim = call.cache.head_dim;
    const T* from = static_cast<const T*>(call.qkv) +
                    static_cast<std::size_t>(row < 0 ? 0 : row) * static_cast<std::size_t>(call.stride) +
                    static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const int d = 32 * c + 8 * lane_t();
        query[c] = {0, 0, 0, 0};
        if (row < 0 || d >= dim) continue;
        if (dim % 8 == 0) { // then all lie at multiples of 16 bytes
            query[c] = *reinterpret_cast<const uint4*>(from + d);
            continue;
        }
        T numbers[8];
#pragma unroll
        for (int j = 0; j < 8; ++j)
            numbers[j] = d + j < dim ? from[d + j] : from_float<T>(0);
        memcpy(&query[c], numbers, sizeof numbers);
    }
}

// Adds to scores [n][2 i + b]: query i of the lane and key 8 n + 2 t + b.
template <typename T, int kChunks>
__device__ void score_keys(const uint4 (&queries)[2][kChunks], const KeyTile<kChunks>& keys,
                           float (&scores)[kScoreSteps][4]) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        uint4 of_keys[kScoreSteps];
#pragma unroll
        for (int n = 0; n < kScoreSteps; ++n)
            of_keys[n] = keys[8 * n + lane_g()][unit_in_tile(lane_g(), 4 * c + lane_t())];
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const unsigned of_q[4] = {word_of(queries[0][c], 2 * step), word_of(queries[1][c], 2 * step),
                                      word_of(queries[0][c], 2 * step + 1), word_of(queries[1][c], 2 * step + 1)};
#pragma unroll
            for (int n = 0; n < kScoreSteps; ++n) {
                const unsigned of_k[2] = {word_of(of_keys[n], 2 * step), word_of(of_keys[n], 2 * step + 1)};
                multiply_16x8x16<T>(scores[n], of_q, of_k);
            }
        }
    }
}

// Gives the form of weights 2 ^ (factor (score - largest)).
struct ScoreForm {
    bool is_product; // the score is q . key alone, its scale in the factor
    float factor;
};

__device__ inline ScoreForm score_form(const AttendCall& call) {
    const bool is_product =
        call.soft_cap <= 0 && call.slopes == nullptr && call.relative_biases == nullptr && call.scale > 0;
    return {is_product, is_product ? call.scale * kLog2OfE : kLog2OfE};
}

// Turns products into weights. Scales the sums of weights to the largest score so far, and returns the scales.
template <typename T>
__device__ void weigh_step(const AttendCall& call, const ScoreForm& form, int first_key, bool all_seen,
                           float (&scores)[kScoreSteps][4], QueryPair& pair, StepWeights (&weights)[kValueParts][1],
                           float (&scales)[2]) {
    if (!form.is_product) {
#pragma unroll
        for (int n = 0; n < kScoreSteps; ++n)
#pragma unroll
            for (int c = 0; c < 4; ++c)
                scores[n][c] = score_of(call, scores[n][c], first_key + 8 * n + 2 * lane_t() + c % 2, pair.heads[c / 2],
                                        pair.positions[c / 2]);
    }
    if (!all_seen) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int part = 0; part < kValueParts; ++part) {
                const unsigned seen = pair.reaches[i].seen(first_key + 32 * part) >> 2 * lane_t();
#pragma unroll
                for (int n = 0; n < 4; ++n)
#pragma unroll
                    for (int b = 0; b < 2; ++b)
                        if ((seen >> (8 * n + b) & 1) == 0) scores[4 * part + n][2 * i + b] = -INFINITY;
            }
    }
    float shift[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float largest = pair.largest[i];
#pragma unroll
        for (int n = 0; n < kScoreSteps; ++n)
            largest = fmaxf(largest, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
#pragma unroll
        for (int step = 1; step < 4; step *= 2)
            largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
        shift[i] = largest == -INFINITY ? 0.0f : -largest * form.factor; // nothing is seen yet: all weights are 0
        scales[i] = largest == pair.largest[i] ? 1.0f : power_of_two(fmaf(pair.largest[i], form.factor, shift[i]));
        pair.largest[i] = largest;
        pair.sums[i] *= scales[i];
    }
#pragma unroll
    for (int n = 0; n < kScoreSteps; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float low = power_of_two(fmaf(scores[n][2 * i], form.factor, shift[i]));
            const float high = power_of_two(fmaf(scores[n][2 * i + 1], form.factor, shift[i]));
            pair.sums[i] += low + high;
            weights[n / 4][0].pairs[n / 2 % 2][2 * (n % 2) + i] = pair_of<T>(low, high);
        }
}

// attended += weights * values of a step. Non-finite values spoil the sums of all queries for good. If careful, they
// spoil only the sums of queries that see their keys.
template <typename T, bool kCareful, int kChunks>
__device__ void add_values(const StepWeights (&weights)[kValueParts][1], const KeyTile<kChunks>& tile, int first_key,
                           const QueryPair& pair, float (&attended)[kChunks / 2][8][4]) {
#pragma unroll
    for (int part = 0; part < kValueParts; ++part)
#pragma unroll
        for (int half = 0; half < kChunks / 2; ++half) {
            uint4 values[2][4];
#pragma unroll
            for (int step = 0; step < 2; ++step)
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const int key = 2 * lane_t() + k % 2; // of each 8
                    values[step][k] =
                        tile[32 * part + 16 * step + 8 * (k / 2) + key][unit_in_tile(key, 8 * half + lane_g())];
                }
            unsigned taken_out = 0;
            if constexpr (kCareful) taken_out = take_out_non_finite<T>(values);
            multiply_values<T>(weights[part], values, attended[half]);
            if constexpr (kCareful)
                spoil_sums([&](int i) { return pair.reaches[i].seen(first_key + 32 * part); }, taken_out,
                           attended[half]);
        }
}

// Stores scale * values [j][2 i + b]: query i of the lane, dimension 16 t + 8 b + j of the 64 that begin at `first`.
template <typename T>
__device__ void store_values(const AttendCall& call, int row, int head, int i, float scale, int first,
                             const float (&values)[8][4]) {
    const int dim = call.cache.head_dim;
    T* out = static_cast<T*>(call.attended) +
             static_cast<std::size_t>(row) * static_cast<std::size_t>(call.out_stride) +
             static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
#pragma unroll
    for (int b = 0; b < 2; ++b) {
        const int d = first + 16 * lane_t() + 8 * b;
        unsigned pairs[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            pairs[j] = pair_of<T>(values[2 * j][2 * i + b] * scale, values[2 * j + 1][2 * i + b] * scale);
        if (dim % 8 == 0) { // then all lie at multiples of 16 bytes
            if (d < dim) *reinterpret_cast<uint4*>(out + d) = {pairs[0], pairs[1], pairs[2], pairs[3]};
            continue;
        }
        T numbers[8];
        memcpy(numbers, pairs, sizeof numbers);
        for (int j = 0; j < 8; ++j)
            if (d + j < dim) out[d + j] = numbers[j];
    }
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kPromptThreads, 2) attend_prompt_tiles(RowTable table, AttendCall call) {
    begin_kernel();
    constexpr int kHalves = kChunks / 2; // groups of 64 dimensions
    // The tiles hold in turn: keys of a step, its values, keys of the next step, and so on.
    constexpr int kTiles = 3;
    __shared__ KeyTile<kChunks> tiles[kTiles];
    const auto next = [](int tile) { return tile + 1 < kTiles ? tile + 1 : 0; };
    const int kv_head = static_cast<int>(blockIdx.x);
    const QueryHeads heads = query_heads_of(call, kv_head);
    const int first_query = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kBlockQueries; // most keys first

    int begin = call.cache.capacity, end = 0; // keys that the block's queries see
    for (int query = lane_of_thread(); query < kBlockQueries; query += kWarp) {
        const Reach reach = reach_of_query(table, call, row_of_query(table, heads, first_query + query));
        begin = reach.begin < begin ? reach.begin : begin;
        end = reach.end > end ? reach.end : end;
    }
    begin = __reduce_min_sync(kAllLanes, begin);
    end = __reduce_max_sync(kAllLanes, end);
    if (end == 0) return; // padding, on all threads

    const int first_row = first_query / heads.count, first_key = begin / kStepKeys * kStepKeys;
    // All rows read the same keys.
    const TileCopier<T, kChunks> copier(table, call, first_row, kv_head, end);

    const int own_query = first_query + warp_of_thread() * kTileQueries + lane_g();
    QueryPair pair;
    uint4 queries[2][kChunks];
    Reach any = {call.cache.capacity, 0}, all = {0, call.cache.capacity}; // seen by some, by every query of a warp
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int query = own_query + 8 * i, row = row_of_query(table, heads, query);
        pair.heads[i] = row < 0 ? 0 : heads.begin + query % heads.count;
        pair.positions[i] = row < 0 ? 0 : position_of(table, call, row);
        const Reach reach = pair.reaches[i] = reach_of_query(table, call, row);
        load_query<T>(call, row, pair.heads[i], queries[i]);
        any.begin = reach.begin < any.begin ? reach.begin : any.begin;
        any.end = reach.end > any.end ? reach.end : any.end;
        if (row < 0) continue;
        all.begin = reach.begin > all.begin ? reach.begin : all.begin;
        all.end = reach.end < all.end ? reach.end : all.end;
    }
    any = {__reduce_min_sync(kAllLanes, any.begin), __reduce_max_sync(kAllLanes, any.end)};
    all = {__reduce_max_sync(kAllLanes, all.begin), __reduce_min_sync(kAllLanes, all.end)};

    const ScoreForm form = score_form(call);
    float attended[kHalves][8][4];
    // Repeats carefully if non-finite values may have spoilt sums of queries that do not see them.
    for (bool careful = false;; careful = true) {
        for (int i = 0; i < 2; ++i) {
            pair.largest[i] = -INFINITY;
            pair.sums[i] = 0;
        }
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
#pragma unroll
            for (int j = 0; j < 8; ++j)
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    attended[half][j][c] = 0;
        // Copies for a step begin in the step before, so the first step computes nothing. Each tile is one group of a
        // thread's copies. One group may still be under way after the tile that is waited for.
        int of_keys = 0;
#pragma unroll 1
        for (int key = first_key - kStepKeys; key < end; key += kStepKeys) {
            const int of_values = next(of_keys), of_next_keys = next(of_values), next_key = key + kStepKeys;
            const bool seen = key < any.end && next_key > any.begin; // by the warp
            wait_for_copies<1>();
            __syncthreads(); // the keys are there, and all warps have added the values of the previous step
            if (next_key < end)
                copier.start(copier.keys, next_key, tiles[of_next_keys]); // in place of the previous step's values
            end_copies();
            StepWeights weights[kValueParts][1];
            if (seen) {
                float scores[kScoreSteps][4] = {}, scales[2];
                score_keys<T, kChunks>(queries, tiles[of_keys], scores);
                weigh_step<T>(call, form, key, key >= all.begin && next_key <= all.end, scores, pair, weights, scales);
#pragma unroll
                for (int half = 0; half < kHalves; ++half)
#pragma unroll
                    for (int j = 0; j < 8; ++j)
#pragma unroll
                        for (int c = 0; c < 4; ++c)
                            attended[half][j][c] *= scales[c / 2];
            }
            wait_for_copies<1>();
            __syncthreads(); // the values are there, and all warps have multiplied the keys
            if (next_key < end) copier.start(copier.values, next_key, tiles[of_keys]);
            end_copies();
            if (seen && careful) add_values<T, true, kChunks>(weights, tiles[of_values], key, pair, attended);
            if (seen && !careful) add_values<T, false, kChunks>(weights, tiles[of_values], key, pair, attended);
            of_keys = of_next_keys;
        }
        bool finite = true;
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
#pragma unroll
            for (int j = 0; j < 8; ++j)
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    finite = fabsf(attended[half][j][c]) < INFINITY && finite;
        if (careful || __syncthreads_or(finite ? 0 : 1) == 0) break;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float sum = pair.sums[i];
        for (int step = 1; step < 4; step *= 2)
            sum += __shfl_xor_sync(kAllLanes, sum, step);
        if (call.sinks != nullptr)
            sum += power_of_two(call.sinks[pair.heads[i]] * kLog2OfE - pair.largest[i] * form.factor);
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
            if (pair.reaches[i].end > 0)
                store_values<T>(call, (own_query + 8 * i) / heads.count, pair.heads[i], i, 1 / sum, 64 * half,
                                attended[half]);
    }
}

template <typename T> void launch_prompt(void* stream, const RowTable& table, const AttendCall& call) {
    const int n_heads = call.n_query_heads, n_kv_heads = call.cache.n_kv_heads;
    const int max_group = n_heads % n_kv_heads == 0 ? n_heads / n_kv_heads : n_heads;
    const dim3 blocks(static_cast<unsigned>(n_kv_heads),
                      blocks_for(static_cast<std::size_t>(table.rows * max_group), kBlockQueries));
    launch(stream, {blocks, kPromptThreads},
           call.cache.head_dim <= 64 ? attend_prompt_tiles<T, 2> : attend_prompt_tiles<T, 4>, table, call);
}

} // namespace

void attend_prompt(void* stream, const RowTable& table, const AttendCall& call) {
    if (call.cache.head_dim > kMaxPromptHead || call.cache.is_latent()) return attend(stream, table, call);
    switch (call.cache.type) {
    case NumberType::float32:
        return attend(stream, table, call);
    case NumberType::bfloat16:
        return launch_prompt<__nv_bfloat16>(stream, table, call);
    case NumberType::float16:
        return launch_prompt<__half>(stream, table, call);
    }
}

} // namespace entrodraft::model::gpu
