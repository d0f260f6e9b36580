// Attention of a prompt's chunk over 16-bit caches: many rows of one text, whose keys are all the same.
//
// A block of threads takes 64 queries of a key head, row by row, each of its warps 16, and walks along their keys in
// steps of 64, with a running maximum and sum; nothing but the result is written. Keys and values of coming steps are
// on their way into shared memory while a step is computed. So they come once for 64 queries from the second-level
// cache, and for 16 from shared memory: 64 and 16 operations a byte. (In parts of 256 keys, as
// attention_tensor_cores.cu has them for few rows, they would come for every 16 queries, and the parts go out and
// back.) Weights go into the product rounded to the cache's type.
//
// A query is a row of the tensor-core step alone, steps begin at multiples of 64 keys, and one of which it sees nothing
// leaves its sums as they are: so its bits depend on its own keys alone.
#include "model/gpu/attention_steps.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kPromptWarps = 4;
constexpr int kPromptThreads = kPromptWarps * kWarp;
constexpr int kBlockQueries = kPromptWarps * kTileQueries;
constexpr int kMaxPromptHead = 128; // dimensions: what a warp's registers hold
constexpr int kStepKeys = 64;
constexpr int kScoreSteps = kStepKeys / 8;  // tensor-core steps of a dimension's scores
constexpr int kValueParts = kStepKeys / 32; // what multiply_values() takes at once
constexpr float kLog2OfE = 1.44269504f;

// Keys or values of a step: 16 bytes, 8 dimensions, a unit.
template <int kChunks> using KeyTile = uint4[kStepKeys][4 * kChunks];

// Where a tile has a unit of a key. The 8 lanes whose reads meet ask for 4 units of 2 keys (of scores) or 2 units of
// every other key of 8 (of values): so no two of them share a bank.
__device__ inline int unit_in_tile(int key, int unit) {
    return unit ^ (key & 6) ^ (4 * (key & 1));
}

// The block starts to copy the keys from `first` on; of those outside of [begin, end) the nearest one.
template <typename T, int kChunks>
__device__ void copy_tile(const CacheReader<T>& reader, int first, int begin, int end, KeyTile<kChunks>& tile) {
    constexpr int kUnits = 4 * kChunks, kKeysAtOnce = kPromptThreads / kUnits;
    const int thread = static_cast<int>(threadIdx.x), unit = thread % kUnits;
#pragma unroll
    for (int i = 0; i < kStepKeys / kKeysAtOnce; ++i) {
        const int key = thread / kUnits + i * kKeysAtOnce, place = nearest_key(first + key, begin, end);
        const uint4* from = (place < reader.prefix_length ? reader.shared : reader.own) + place * reader.stride;
        copy_async(&tile[key][unit_in_tile(key, unit)], &from[unit < reader.stride ? unit : 0]);
    }
}

// 2 ^ x
__device__ inline float power_of_two(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

// The keys that the query of this number has; none of a query that there is not.
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
    int rows[2], heads[2], positions[2]; // row: negative where there is none
    Reach reaches[2];
    float largest[2], sums[2]; // of scores; of this lane's weights
};

// The lane's part of its queries, in the order of keys in a tile.
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

// scores [n][2 i + b]: of query i of the lane and key 8 n + 2 t + b.
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

// How products become weights 2 ^ (factor (score - largest)).
struct ScoreForm {
    bool is_product; // the score is q . key alone, its scale in the factor
    float factor;
};

__device__ inline ScoreForm score_form(const AttendCall& call) {
    const bool is_product =
        call.soft_cap <= 0 && call.slopes == nullptr && call.relative_biases == nullptr && call.scale > 0;
    return {is_product, is_product ? call.scale * kLog2OfE : kLog2OfE};
}

// Products become weights; what has been summed is to be scaled to the largest so far.
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
        shift[i] = largest == -INFINITY ? 0.0f : -largest * form.factor; // nothing seen yet: all weights are 0
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

// attended += weights values of a step. `careful`: values that are not finite spoil only the sums of queries that see
// their keys; else those of all, which stay so.
template <typename T, int kChunks>
__device__ void add_values(const StepWeights (&weights)[kValueParts][1], const KeyTile<kChunks>& tile, bool careful,
                           int first_key, const QueryPair& pair, float (&attended)[kChunks / 2][8][4]) {
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
            const unsigned taken_out = careful ? take_out_non_finite<T>(values) : 0;
            multiply_values<T>(weights[part], values, attended[half]);
            if (careful)
                spoil_sums([&](int i) { return pair.reaches[i].seen(first_key + 32 * part); }, taken_out,
                           attended[half]);
        }
}

// scale * values [j][2 i + b]: of query i of the lane, dimension 16 t + 8 b + j of the 64 from `first` on.
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
__global__ void __launch_bounds__(kPromptThreads, kChunks <= 2 ? 3 : 2)
    attend_prompt_tiles(RowTable table, AttendCall call) {
    begin_kernel();
    constexpr int kHalves = kChunks / 2; // of 64 dimensions
    // Keys of a step, its values, keys of the next step, ...
    constexpr int kTiles = 3;
    __shared__ KeyTile<kChunks> tiles[kTiles];
    const auto next = [](int tile) { return tile + 1 < kTiles ? tile + 1 : 0; };
    const int kv_head = static_cast<int>(blockIdx.x);
    const QueryHeads heads = query_heads_of(call, kv_head);
    const int first_query = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kBlockQueries; // most keys first

    int begin = call.cache.capacity, end = 0; // of the block's queries
    for (int query = lane_of_thread(); query < kBlockQueries; query += kWarp) {
        const Reach reach = reach_of_query(table, call, row_of_query(table, heads, first_query + query));
        begin = reach.begin < begin ? reach.begin : begin;
        end = reach.end > end ? reach.end : end;
    }
    begin = __reduce_min_sync(kAllLanes, begin);
    end = __reduce_max_sync(kAllLanes, end);
    if (end == 0) return; // padding, on all threads

    QueryPair pair;
    uint4 queries[2][kChunks];
    Reach any = {call.cache.capacity, 0},
          all = {0, call.cache.capacity}; // that some, that every query of the warp sees
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int query = first_query + warp_of_thread() * kTileQueries + lane_g() + 8 * i;
        const int row = row_of_query(table, heads, query);
        pair.rows[i] = row;
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

    const int first_row = first_query / heads.count; // all others read the same keys
    const CacheReader<T> keys_of(table, call, call.cache.keys, first_row, kv_head, 0);
    const CacheReader<T> values_of(table, call, call.cache.values, first_row, kv_head, 0);
    const ScoreForm form = score_form(call);
    const int first_key = begin / kStepKeys * kStepKeys;
    float attended[kHalves][8][4];
    // Once more, carefully, where values that are not finite may have spoilt sums of queries that do not see them.
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
        // Each tile is a group of a thread's copies. There are always two of them not waited for, and the third tile
        // has been read by all warps at the barrier behind the wait.
        copy_tile<T, kChunks>(keys_of, first_key, begin, end, tiles[0]);
        end_copies();
        copy_tile<T, kChunks>(values_of, first_key, begin, end, tiles[1]);
        end_copies();
        int of_keys = 0;
#pragma unroll 1
        for (int key = first_key; key < end; key += kStepKeys) {
            const int of_values = next(of_keys), of_next_keys = next(of_values), next_key = key + kStepKeys;
            const bool seen = key < any.end && next_key > any.begin; // by the warp
            wait_for_copies<1>();
            __syncthreads(); // the keys are there
            if (next_key < end) copy_tile<T, kChunks>(keys_of, next_key, begin, end, tiles[of_next_keys]);
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
            __syncthreads(); // the values are there
            if (next_key < end) copy_tile<T, kChunks>(values_of, next_key, begin, end, tiles[of_keys]);
            end_copies();
            if (seen) add_values<T, kChunks>(weights, tiles[of_values], careful, key, pair, attended);
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
        if (careful || __syncthreads_or(finite ? 0 : 1) == 0) break; // the tiles have been read by all warps
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float sum = pair.sums[i];
        for (int step = 1; step < 4; step *= 2)
            sum += __shfl_xor_sync(kAllLanes, sum, step);
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
            if (pair.rows[i] >= 0)
                store_values<T>(call, pair.rows[i], pair.heads[i], i, 1 / sum, 64 * half, attended[half]);
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
    if (call.cache.head_dim > kMaxPromptHead) return attend(stream, table, call);
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
