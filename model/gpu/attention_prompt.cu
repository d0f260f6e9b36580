// Attention of a prompt's chunk over 16-bit caches: many rows of one text, whose keys are all the same.
//
// A block of threads takes 64 queries of a key head, row by row, each of its warps 16, and walks along their keys in
// steps of 32, with a running maximum and sum; nothing but the result is written. So keys and values come once for 64
// queries from the second-level cache, and for 16 from the first: 64 and 16 operations a byte. (In parts of 256 keys,
// as attention_tensor_cores.cu has them for few rows, they would come for every 16 queries, and the parts go out and
// back.) Weights go into the product rounded to the cache's type.
//
// A query is a row of the tensor-core step alone, steps begin at multiples of 32 keys, and one of which it sees nothing
// leaves its sums as they are: so its bits depend on its own keys alone.
#include "model/gpu/attention_steps.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kPromptWarps = 4;
constexpr int kMaxPromptHead = 128; // dimensions: what a warp's registers hold
constexpr int kStepKeys = 32;       // 4 steps of 8 keys for scores, 2 of 16 for values

// The lane's two queries.
struct QueryPair {
    int heads[2], positions[2];
    Reach reaches[2];
    float largest[2] = {-INFINITY, -INFINITY};
    float sums[2] = {}; // of this lane's weights
};

// Products become weights exp(score - largest); what has been summed is to be scaled to the largest so far.
template <typename T>
__device__ StepWeights weigh_step(const AttendCall& call, int first_key, float (&scores)[4][4], QueryPair& pair,
                                  float (&scales)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned seen = pair.reaches[i].seen(first_key);
        float largest = pair.largest[i];
#pragma unroll
        for (int n = 0; n < 4; ++n)
#pragma unroll
            for (int b = 0; b < 2; ++b) {
                const int key = 8 * n + 2 * lane_t() + b;
                float& score = scores[n][2 * i + b];
                score = (seen >> key & 1) != 0
                            ? score_of(call, score, first_key + key, pair.heads[i], pair.positions[i])
                            : -INFINITY;
                largest = score > largest ? score : largest;
            }
        for (int step = 1; step < 4; step *= 2) {
            const float other = __shfl_xor_sync(kAllLanes, largest, step);
            largest = other > largest ? other : largest;
        }
        scales[i] = largest == pair.largest[i] ? 1.0f : expf(pair.largest[i] - largest);
        pair.largest[i] = largest;
        pair.sums[i] *= scales[i];
    }
    StepWeights weights;
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float weight[2];
#pragma unroll
            for (int b = 0; b < 2; ++b) {
                const float score = scores[n][2 * i + b];
                weight[b] = score == -INFINITY ? 0.0f : expf(score - pair.largest[i]);
                pair.sums[i] += weight[b];
            }
            weights.pairs[n / 2][2 * (n % 2) + i] = pair_of<T>(weight[0], weight[1]);
        }
    return weights;
}

// values [j][2 i + b]: of query i of the lane, dimension 16 t + 8 b + j of the 64 from `first` on.
template <typename T>
__device__ void store_values(const AttendCall& call, int row, int head, int i, float sum, int first,
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
            pairs[j] = pair_of<T>(values[2 * j][2 * i + b] / sum, values[2 * j + 1][2 * i + b] / sum);
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
__global__ void __launch_bounds__(kPromptWarps* kWarp, kChunks <= 2 ? 3 : 2)
    attend_prompt_tiles(RowTable table, AttendCall call) {
    begin_kernel();
    constexpr int kHalves = kChunks / 2;      // of 64 dimensions
    constexpr int kStepsAtOnce = 8 / kChunks; // of 8 keys, as many as there are registers for
    __shared__ StagedQueries<kChunks> queries[kPromptWarps];
    const int warp = warp_of_thread(), kv_head = static_cast<int>(blockIdx.y);
    const QueryHeads heads = query_heads_of(call, kv_head);
    const int query =
        (static_cast<int>(blockIdx.x) * kPromptWarps + warp) * kTileQueries + lane_of_thread() % kTileQueries;

    int row = -1, head = 0, position = 0; // of lane % kTileQueries
    Reach reach = {call.cache.capacity, 0};
    if (query < table.rows * heads.count && table.slots[query / heads.count] >= 0) {
        row = query / heads.count;
        head = heads.begin + query % heads.count;
        reach = reach_of(table, row, call.window);
        position = position_of(table, call, row);
    }
    const int begin = __reduce_min_sync(kAllLanes, reach.begin), end = __reduce_max_sync(kAllLanes, reach.end);
    if (end == 0) return; // padding
    for (int i = 0; i < kTileQueries; ++i)
        stage_query<T, kChunks>(call, of_lane(row, i), of_lane(head, i), i, queries[warp]);
    __syncwarp();
    QueryPair pair;
    for (int i = 0; i < 2; ++i) {
        const int lane = lane_g() + 8 * i;
        pair.heads[i] = of_lane(head, lane);
        pair.positions[i] = of_lane(position, lane);
        pair.reaches[i] = {of_lane(reach.begin, lane), of_lane(reach.end, lane)};
    }

    const int first_row = of_lane(row, 0); // all others read the same keys
    CacheReader<T> keys_of(table, call, call.cache.keys, first_row, kv_head, 0);
    CacheReader<T> values_of(table, call, call.cache.values, first_row, kv_head, 0);
    float attended[kHalves][8][4] = {};
    for (int key = begin / kStepKeys * kStepKeys; key < end; key += kStepKeys) {
        keys_of.place = values_of.place = nearest_key(key + lane_of_thread(), begin, end);
        float scores[4][4] = {};
#pragma unroll
        for (int n = 0; n < 4; n += kStepsAtOnce) {
            uint4 keys[kStepsAtOnce][kChunks];
            load_keys<T>(keys_of, 8 * n, keys);
            multiply_keys<T>(queries[warp], keys, &scores[n]);
        }
        float scales[2];
        const StepWeights weights[1] = {weigh_step<T>(call, key, scores, pair, scales)};
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
            uint4 values[2][4];
            load_values<T>(values_of, half, values);
            const unsigned taken_out = take_out_non_finite<T>(values);
#pragma unroll
            for (int j = 0; j < 8; ++j)
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    attended[half][j][c] *= scales[c / 2];
            multiply_values<T>(weights, values, attended[half]);
            spoil_sums([&](int i) { return pair.reaches[i].seen(key); }, taken_out, attended[half]);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float sum = pair.sums[i];
        for (int step = 1; step < 4; step *= 2)
            sum += __shfl_xor_sync(kAllLanes, sum, step);
        const int own_row = of_lane(row, lane_g() + 8 * i);
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
            if (own_row >= 0) store_values<T>(call, own_row, pair.heads[i], i, sum, 64 * half, attended[half]);
    }
}

template <typename T> void launch_prompt(void* stream, const RowTable& table, const AttendCall& call) {
    const int n_heads = call.n_query_heads, n_kv_heads = call.cache.n_kv_heads;
    const int max_group = n_heads % n_kv_heads == 0 ? n_heads / n_kv_heads : n_heads;
    const dim3 blocks(blocks_for(static_cast<std::size_t>(table.rows * max_group), kPromptWarps * kTileQueries),
                      static_cast<unsigned>(n_kv_heads));
    launch(stream, {blocks, kPromptWarps * kWarp},
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
