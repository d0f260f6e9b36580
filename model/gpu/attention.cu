// Attention of few rows over long caches: keys are cut into blocks at fixed places, each query meets each block on a
// warp of its own, and what the blocks say is merged in their order. So a row's result depends on its own keys alone.
#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

#include <stdexcept>

namespace entrodraft::model::gpu {

namespace {

constexpr int kWarps = 4;
constexpr int kQueriesOfBlock = 8; // two a warp, of the same head where there are as many rows
constexpr int kKeysOfLane = kKeyBlock / kWarp;
constexpr int kDimsOfLane = kMaxHeadDim / kWarp;
constexpr int kPartHead = 2; // a part of a query: largest score, sum of weights, then the weighted values

__device__ std::size_t part_at(const AttendCall& call, int row, int head, int block) {
    const int blocks = (call.max_keys + kKeyBlock - 1) / kKeyBlock;
    const auto query =
        static_cast<std::size_t>(row) * static_cast<std::size_t>(call.n_query_heads) + static_cast<std::size_t>(head);
    return (query * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(block)) *
           static_cast<std::size_t>(kPartHead + call.cache.head_dim);
}

__device__ std::size_t cache_at(const CacheView& cache, int layer, int slot, int kv_head, int place) {
    const std::size_t of_slots =
        static_cast<std::size_t>(layer) * static_cast<std::size_t>(cache.n_slots) + static_cast<std::size_t>(slot);
    const std::size_t of_heads =
        of_slots * static_cast<std::size_t>(cache.n_kv_heads) + static_cast<std::size_t>(kv_head);
    return (of_heads * static_cast<std::size_t>(cache.capacity) + static_cast<std::size_t>(place)) *
           static_cast<std::size_t>(cache.head_stride);
}

// ---- before: norms, rotation, and into the cache ----

// A warp a head; [rows][query heads, key heads, value heads].
template <typename T> __global__ void place_heads(RowTable table, PlaceCall call) {
    __shared__ float heads[kWarps][kMaxHeadDim];
    const int row = static_cast<int>(blockIdx.y), lane = lane_of_thread();
    const int head = static_cast<int>(blockIdx.x) * kWarps + warp_of_thread();
    const int n_kv_heads = call.cache.n_kv_heads, dim = call.cache.head_dim;
    const int slot = table.slots[row];
    if (head >= call.n_query_heads + 2 * n_kv_heads || slot < 0) return; // whole warps
    T* at = static_cast<T*>(call.qkv) + static_cast<std::size_t>(row) * static_cast<std::size_t>(call.stride) +
            static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
    const bool is_query = head < call.n_query_heads, is_value = head >= call.n_query_heads + n_kv_heads;
    float* mine = heads[warp_of_thread()];
    const float* norm = is_query ? call.query_norm : is_value ? nullptr : call.key_norm;
    float squares = 0;
    for (int d = lane; d < dim; d += kWarp) {
        mine[d] = to_float(at[d]);
        squares += mine[d] * mine[d];
    }
    if (norm != nullptr) {
        const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(dim) + call.norm_epsilon);
        for (int d = lane; d < dim; d += kWarp)
            mine[d] *= scale * norm[d];
    }
    __syncwarp();
    const int half = call.rotary_dims / 2;
    if (call.cosines != nullptr && !is_value) {
        const std::size_t angles = static_cast<std::size_t>(table.positions[row]) * static_cast<std::size_t>(half);
        for (int i = lane; i < half; i += kWarp) { // each lane has both of a pair
            const float cosine = call.cosines[angles + static_cast<std::size_t>(i)];
            const float sine = call.sines[angles + static_cast<std::size_t>(i)];
            const float a = mine[i], b = mine[i + half];
            mine[i] = a * cosine - b * sine;
            mine[i + half] = b * cosine + a * sine;
        }
        __syncwarp();
    }
    T* to = at;
    if (!is_query) {
        const int kv_head = head - call.n_query_heads - (is_value ? n_kv_heads : 0);
        to = static_cast<T*>(is_value ? call.cache.values : call.cache.keys) +
             cache_at(call.cache, call.layer, slot, kv_head, table.places[row]);
    }
    for (int d = lane; d < dim; d += kWarp)
        to[d] = from_float<T>(mine[d]);
}

// ---- a query and a block of keys ----

// Which keys a row sees in this layer.
struct Reach {
    int begin, end;
    int mask_begin; // negative: no mask
    const std::uint64_t* mask;
    __device__ bool holds(int key) const {
        if (key < begin || key >= end) return false;
        if (mask_begin < 0 || key < mask_begin) return true;
        const int bit = key - mask_begin;
        return (mask[bit / 64] >> (bit % 64) & 1) != 0;
    }
};

__device__ Reach reach_of(const RowTable& table, int row, int window) {
    Reach reach = {table.first_keys[row], table.n_keys[row], table.mask_begins[row],
                   table.masks + static_cast<std::size_t>(row) * kMaskWords};
    const int of_layer = window > 0 ? table.window_ends[row] - window : 0;
    if (of_layer > reach.begin) reach.begin = of_layer;
    if (reach.mask_begin >= 0 && reach.begin > reach.mask_begin) reach.begin = reach.mask_begin;
    return reach;
}

// scale * q . key, with the family's cap and bias. Each lane has a key of its own.
template <typename T>
__device__ float score_of(const AttendCall& call, const float* query, const T* key, int place, int head) {
    constexpr int kPerLoad = 16 / static_cast<int>(sizeof(T));
    float sum = 0;
    for (int d = 0; d < call.cache.head_stride; d += kPerLoad) {
        const uint4 loaded = *reinterpret_cast<const uint4*>(key + d);
        const T* numbers = reinterpret_cast<const T*>(&loaded);
#pragma unroll
        for (int i = 0; i < kPerLoad; ++i)
            sum += query[d + i] * to_float(numbers[i]);
    }
    float score = sum * call.scale;
    if (call.soft_cap > 0) score = call.soft_cap * tanhf(score / call.soft_cap);
    if (call.slopes != nullptr) {
        // Falcon rounds slope times place to bfloat16, and scales it as the product is scaled.
        const float bias = to_float(from_float<__nv_bfloat16>(call.slopes[head] * static_cast<float>(place)));
        score += bias * call.scale;
    }
    return score;
}

template <typename T> __global__ void attend_blocks(RowTable table, AttendCall call) {
    __shared__ float queries[kWarps][kMaxHeadDim];
    const int lane = lane_of_thread(), block = static_cast<int>(blockIdx.x), dim = call.cache.head_dim;
    const int first_key = block * kKeyBlock;
    float* query = queries[warp_of_thread()];
    for (int i = warp_of_thread(); i < kQueriesOfBlock; i += kWarps) {
        const int number = static_cast<int>(blockIdx.y) * kQueriesOfBlock + i; // head by head, rows within
        const int head = number / table.rows, row = number % table.rows;
        if (head >= call.n_query_heads || table.slots[row] < 0) continue; // whole warps
        const Reach reach = reach_of(table, row, call.window);
        if (reach.end <= first_key || reach.begin >= first_key + kKeyBlock) continue;
        const T* q = static_cast<const T*>(call.qkv) +
                     static_cast<std::size_t>(row) * static_cast<std::size_t>(call.stride) +
                     static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
        __syncwarp(); // the query before it has been read
        for (int d = lane; d < call.cache.head_stride; d += kWarp)
            query[d] = d < dim ? to_float(q[d]) : 0.0f;
        __syncwarp();

        const int kv_head = call.kv_head_of[head], prefix = table.prefix_lengths[row];
        const std::size_t own = cache_at(call.cache, call.layer, table.slots[row], kv_head, 0);
        const std::size_t shared = cache_at(call.cache, call.layer, table.prefix_slots[row], kv_head, 0);
        const auto at = [&](int key) {
            return (key < prefix ? shared : own) +
                   static_cast<std::size_t>(key) * static_cast<std::size_t>(call.cache.head_stride);
        };
        float weights[kKeysOfLane];
        float largest = -INFINITY;
#pragma unroll
        for (int j = 0; j < kKeysOfLane; ++j) {
            const int key = first_key + j * kWarp + lane;
            weights[j] = -INFINITY;
            if (!reach.holds(key)) continue;
            weights[j] = score_of(call, query, static_cast<const T*>(call.cache.keys) + at(key), key, head);
            if (weights[j] > largest) largest = weights[j];
        }
        largest = warp_max(largest);
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kKeysOfLane; ++j) {
            weights[j] = weights[j] == -INFINITY ? 0.0f : expf(weights[j] - largest);
            sum += weights[j];
        }
        sum = warp_sum(sum);

        float values[kDimsOfLane] = {};
#pragma unroll
        for (int j = 0; j < kKeysOfLane; ++j)
            for (int of = 0; of < kWarp; ++of) {
                const float weight = __shfl_sync(kAllLanes, weights[j], of);
                if (weight == 0.0f) continue; // the same on all lanes
                const T* value = static_cast<const T*>(call.cache.values) + at(first_key + j * kWarp + of);
#pragma unroll
                for (int e = 0; e < kDimsOfLane; ++e)
                    if (lane + e * kWarp < dim) values[e] += weight * to_float(value[lane + e * kWarp]);
            }
        float* part = call.partial + part_at(call, row, head, block);
        if (lane == 0) {
            part[0] = largest;
            part[1] = sum;
        }
#pragma unroll
        for (int e = 0; e < kDimsOfLane; ++e)
            if (lane + e * kWarp < dim) part[kPartHead + lane + e * kWarp] = values[e];
    }
}

// A warp a query: its parts in order.
template <typename T> __global__ void merge_blocks(RowTable table, AttendCall call) {
    const int head = static_cast<int>(blockIdx.x) * kWarps + warp_of_thread(), row = static_cast<int>(blockIdx.y);
    const int lane = lane_of_thread(), dim = call.cache.head_dim;
    if (head >= call.n_query_heads || table.slots[row] < 0) return;
    const Reach reach = reach_of(table, row, call.window);
    const int first = reach.begin / kKeyBlock, end = (reach.end + kKeyBlock - 1) / kKeyBlock;
    const auto part = [&](int block) { return call.partial + part_at(call, row, head, block); };
    float largest = -INFINITY;
    for (int block = first; block < end; ++block)
        if (part(block)[0] > largest) largest = part(block)[0];
    float sum = 0;
    for (int block = first; block < end; ++block)
        if (part(block)[1] > 0) sum += part(block)[1] * expf(part(block)[0] - largest);
    T* out = static_cast<T*>(call.attended) +
             static_cast<std::size_t>(row) * static_cast<std::size_t>(call.out_stride) +
             static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
    for (int d = lane; d < dim; d += kWarp) {
        float value = 0;
        for (int block = first; block < end; ++block)
            if (part(block)[1] > 0) value += part(block)[kPartHead + d] * expf(part(block)[0] - largest);
        out[d] = from_float<T>(value / sum);
    }
}

// Rows from `begin` on.
RowTable rows_from(const RowTable& table, int begin, int rows) {
    RowTable part = table;
    for (const std::int32_t** column :
         {&part.tokens, &part.slots, &part.positions, &part.places, &part.n_keys, &part.first_keys, &part.window_ends,
          &part.prefix_slots, &part.prefix_lengths, &part.mask_begins})
        *column += begin;
    part.masks += begin * kMaskWords;
    part.rows = rows;
    return part;
}

template <typename T> void attend_rows(void* stream, const RowTable& table, const AttendCall& call) {
    const int queries = table.rows * call.n_query_heads;
    const dim3 blocks(blocks_for(static_cast<std::size_t>(call.max_keys), kKeyBlock),
                      blocks_for(static_cast<std::size_t>(queries), kQueriesOfBlock));
    launch(stream, {blocks, kWarps * kWarp}, attend_blocks<T>, table, call);
    const dim3 merges(blocks_for(static_cast<std::size_t>(call.n_query_heads), kWarps),
                      static_cast<unsigned>(table.rows));
    launch(stream, {merges, kWarps * kWarp}, merge_blocks<T>, table, call);
}

// A few rows at a time, so that the workspace is theirs alone.
template <typename T> void attend_in(void* stream, const RowTable& table, const AttendCall& call) {
    for (int begin = 0; begin < table.rows; begin += kAttendRows) {
        AttendCall part = call;
        part.qkv = static_cast<T*>(call.qkv) + static_cast<std::ptrdiff_t>(begin) * call.stride;
        part.attended = static_cast<T*>(call.attended) + static_cast<std::ptrdiff_t>(begin) * call.out_stride;
        attend_rows<T>(stream, rows_from(table, begin, std::min(kAttendRows, table.rows - begin)), part);
    }
}

void check_head_dim(int dim) {
    if (dim < 1 || dim > kMaxHeadDim)
        throw std::invalid_argument("heads of " + std::to_string(dim) + " on a GPU: they may have up to " +
                                    std::to_string(kMaxHeadDim));
}

} // namespace

std::size_t attend_workspace_floats(int rows, int n_query_heads, int head_dim, int max_keys) {
    return static_cast<std::size_t>(std::min(rows, kAttendRows)) * static_cast<std::size_t>(n_query_heads) *
           blocks_for(static_cast<std::size_t>(max_keys), kKeyBlock) * static_cast<std::size_t>(kPartHead + head_dim);
}

void place_keys(void* stream, const RowTable& table, const PlaceCall& call) {
    check_head_dim(call.cache.head_dim);
    const auto heads = static_cast<std::size_t>(call.n_query_heads + 2 * call.cache.n_kv_heads);
    const dim3 blocks(blocks_for(heads, kWarps), static_cast<unsigned>(table.rows));
    with_type(call.cache.type, [&]<typename T>(T*) {
        launch(stream, {blocks, kWarps * kWarp}, place_heads<T>, table, call);
    });
}

void attend(void* stream, const RowTable& table, const AttendCall& call) {
    check_head_dim(call.cache.head_dim);
    with_type(call.cache.type, [&]<typename T>(T*) { attend_in<T>(stream, table, call); });
}

} // namespace entrodraft::model::gpu
