// Attention over the cache: keys lie in blocks at fixed places, each query has a partial result (a part) of each block,
// and the parts are merged in an order that the row's own keys alone decide. 16-bit caches: attention_tensor_cores.cu
// computes the parts; float32 caches: a warp a query here.
#include "model/gpu/attention.cuh"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

namespace entrodraft::model::gpu {

namespace {

constexpr int kWarps = 4;
constexpr int kMergeWarps = 8;
constexpr int kQueriesOfBlock = 8; // two a warp, of the same head where there are as many rows
constexpr int kKeysOfLane = kKeyBlock / kWarp;
constexpr int kDimsOfLane = kMaxHeadDim / kWarp;

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

// ---- float32: a query and a block of keys ----

// Where a row's keys begin in its own slot and in the slot that holds the prefix it shares.
struct KeyPlaces {
    std::size_t own, shared;
    int prefix_length;
    std::size_t stride;
    __device__ std::size_t at(int key) const {
        return (key < prefix_length ? shared : own) + static_cast<std::size_t>(key) * stride;
    }
};

__device__ KeyPlaces key_places(const RowTable& table, const AttendCall& call, int row, int kv_head) {
    return {cache_at(call.cache, call.layer, table.slots[row], kv_head, 0),
            cache_at(call.cache, call.layer, table.prefix_slots[row], kv_head, 0), table.prefix_lengths[row],
            static_cast<std::size_t>(call.cache.head_stride)};
}

// query . key; each lane has a key of its own.
__device__ float product_of(const float* query, const float* key, int dims) {
    float sum = 0;
    for (int d = 0; d < dims; d += 4) {
        const float4 four = *reinterpret_cast<const float4*>(key + d);
        sum += query[d] * four.x;
        sum += query[d + 1] * four.y;
        sum += query[d + 2] * four.z;
        sum += query[d + 3] * four.w;
    }
    return sum;
}

__global__ void attend_blocks(RowTable table, AttendCall call) {
    __shared__ float queries[kWarps][kMaxHeadDim];
    const int lane = lane_of_thread(), block = static_cast<int>(blockIdx.x);
    const int dim = call.cache.head_dim, dims = call.cache.head_stride;
    const int first_key = block * kKeyBlock;
    float* query = queries[warp_of_thread()];
    for (int i = warp_of_thread(); i < kQueriesOfBlock; i += kWarps) {
        const int number = static_cast<int>(blockIdx.y) * kQueriesOfBlock + i; // head by head, rows within
        const int head = number / table.rows, row = number % table.rows;
        if (head >= call.n_query_heads || table.slots[row] < 0) continue; // whole warps
        const Reach reach = reach_of(table, row, call.window);
        if (!reach.meets(block)) continue;
        const float* q = static_cast<const float*>(call.qkv) +
                         static_cast<std::size_t>(row) * static_cast<std::size_t>(call.stride) +
                         static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
        __syncwarp(); // the query before it has been read
        for (int d = lane; d < dims; d += kWarp)
            query[d] = d < dim ? q[d] : 0.0f;
        __syncwarp();

        const KeyPlaces places = key_places(table, call, row, call.kv_head_of[head]);
        float weights[kKeysOfLane];
        float largest = -INFINITY;
#pragma unroll
        for (int j = 0; j < kKeysOfLane; ++j) {
            const int key = first_key + j * kWarp + lane;
            weights[j] = -INFINITY;
            if ((reach.seen(first_key + j * kWarp) >> lane & 1) == 0) continue;
            const float product = product_of(query, static_cast<const float*>(call.cache.keys) + places.at(key), dims);
            weights[j] = score_of(call, product, key, head);
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
                const float* value =
                    static_cast<const float*>(call.cache.values) + places.at(first_key + j * kWarp + of);
#pragma unroll
                for (int e = 0; e < kDimsOfLane; ++e)
                    if (lane + e * kWarp < dims) values[e] += weight * value[lane + e * kWarp];
            }
        float* part = part_of(call, row, head, block);
        if (lane == 0) {
            part[0] = largest;
            part[1] = sum;
        }
#pragma unroll
        for (int e = 0; e < kDimsOfLane; ++e)
            if (lane + e * kWarp < dims) part[kPartHead + lane + e * kWarp] = values[e];
    }
}

// ---- all types: the parts of a query ----

// A block of threads a query. Its warps take every kMergeWarps-th part, a lane four dimensions of it and the four 128
// further on; then the warps' sums are added in order.
template <typename T>
__global__ void __launch_bounds__(kMergeWarps* kWarp) merge_parts_of_queries(RowTable table, AttendCall call) {
    constexpr int kFours = kMaxHeadDim / (4 * kWarp);
    __shared__ float4 of_warps[kMergeWarps][kFours * kWarp];
    __shared__ float weights[kMergeWarps * kWarp];
    const int head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
    const int lane = lane_of_thread(), warp = warp_of_thread();
    const int dim = call.cache.head_dim, dims = call.cache.head_stride;
    if (table.slots[row] < 0) return; // the whole block
    const Reach reach = reach_of(table, row, call.window);
    const int first = reach.begin / kKeyBlock, end = (reach.end + kKeyBlock - 1) / kKeyBlock;
    const float* parts = part_of(call, row, head, 0);
    const auto part = [&](int block) { return parts + static_cast<std::size_t>(block) * (kPartHead + dims); };
    float largest = -INFINITY;
    for (int block = first + lane; block < end; block += kWarp)
        largest = fmaxf(largest, part(block)[0]);
    largest = warp_max(largest);
    float sum = 0;
    for (int block = first + lane; block < end; block += kWarp)
        sum += part(block)[1] * expf(part(block)[0] - largest);
    sum = warp_sum(sum);

    // A part a thread: the weights first, then nothing but loads and sums.
    float4 values[kFours] = {};
    for (int begin = first; begin < end; begin += kMergeWarps * kWarp) {
        const int own = begin + static_cast<int>(threadIdx.x);
        __syncthreads(); // the weights before have been read
        weights[threadIdx.x] = own < end ? expf(part(own)[0] - largest) : 0.0f;
        __syncthreads();
        const int n_parts = end - begin < kMergeWarps * kWarp ? end - begin : kMergeWarps * kWarp;
#pragma unroll 8
        for (int i = warp; i < n_parts; i += kMergeWarps) {
            const float weight = weights[i];
#pragma unroll
            for (int e = 0; e < kFours; ++e) {
                const int d = 4 * (lane + e * kWarp);
                const float4 four =
                    __ldg(reinterpret_cast<const float4*>(part(begin + i) + kPartHead + (d < dims ? d : 0)));
                values[e].x += weight * four.x;
                values[e].y += weight * four.y;
                values[e].z += weight * four.z;
                values[e].w += weight * four.w;
            }
        }
    }
#pragma unroll
    for (int e = 0; e < kFours; ++e)
        of_warps[warp][lane + e * kWarp] = values[e];
    __syncthreads();
    T* out = static_cast<T*>(call.attended) +
             static_cast<std::size_t>(row) * static_cast<std::size_t>(call.out_stride) +
             static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
    for (int d = static_cast<int>(threadIdx.x); d < dim; d += kMergeWarps * kWarp) {
        float value = 0;
        for (int of = 0; of < kMergeWarps; ++of)
            value += reinterpret_cast<const float*>(of_warps[of])[d];
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
    if constexpr (std::is_same_v<T, float>) {
        const dim3 blocks(blocks_for(static_cast<std::size_t>(call.max_keys), kKeyBlock),
                          blocks_for(static_cast<std::size_t>(table.rows * call.n_query_heads), kQueriesOfBlock));
        launch(stream, {blocks, kWarps * kWarp}, attend_blocks, table, call);
    } else {
        attend_tensor_cores(stream, table, call);
    }
    const dim3 queries(static_cast<unsigned>(call.n_query_heads), static_cast<unsigned>(table.rows));
    launch(stream, {queries, kMergeWarps * kWarp}, merge_parts_of_queries<T>, table, call);
}

// As many rows at a time as the workspace has memory for: kAttendRows over a full cache, more over fewer keys.
template <typename T> void attend_in(void* stream, const RowTable& table, const AttendCall& call) {
    const int n_rows = kAttendRows * key_blocks(call.cache.capacity) / key_blocks(call.max_keys);
    for (int begin = 0; begin < table.rows; begin += n_rows) {
        AttendCall part = call;
        part.qkv = static_cast<T*>(call.qkv) + static_cast<std::ptrdiff_t>(begin) * call.stride;
        part.attended = static_cast<T*>(call.attended) + static_cast<std::ptrdiff_t>(begin) * call.out_stride;
        attend_rows<T>(stream, rows_from(table, begin, std::min(n_rows, table.rows - begin)), part);
    }
}

void check_head_dim(int dim) {
    if (dim < 1 || dim > kMaxHeadDim)
        throw std::invalid_argument("heads of " + std::to_string(dim) + " on a GPU: they may have up to " +
                                    std::to_string(kMaxHeadDim));
}

} // namespace

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
