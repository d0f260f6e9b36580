// Attention over the cache. Keys lie in blocks at fixed places, and each query has one partial result (a part) for each
// block. The warp that stores the last part of a group of blocks merges the parts of the group. The warp that merges
// the last group merges the groups. This order depends on a row's own keys alone. Float32 caches are handled here, with
// one warp per query; attention_tensor_cores.cu handles 16-bit caches.
#include "model/gpu/attention.cuh"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::model::gpu {

namespace {

constexpr int kWarps = 4;
constexpr int kQueriesOfBlock = 8;  // two per warp, of the same head if the pass has enough rows
constexpr int kMaxBlocksInRow = 64; // blocks of threads that share a query's blocks of keys
constexpr int kKeysOfLane = kKeyBlock / kWarp;

// ---- before: norms, rotation, and into the cache ----

// One warp per head; heads are [rows][query heads, key heads, value heads].
template <typename T> __global__ void place_heads(RowTable table, PlaceCall call) {
    begin_kernel();
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
        float mean = 0;
        if (call.row_squares == nullptr) {
            mean = warp_sum(squares) / static_cast<float>(dim);
        } else {
            for (int part = 0; part < call.n_square_parts; ++part)
                mean += call.row_squares[2 * (part * table.rows + row) + (is_query ? 0 : 1)];
            mean /= is_query ? call.query_count : call.key_count;
            norm += (is_query ? head : head - call.n_query_heads) * dim;
        }
        const float scale = 1.0f / sqrtf(mean + call.norm_epsilon);
        for (int d = lane; d < dim; d += kWarp)
            mine[d] *= scale * norm[d];
    }
    __syncwarp();
    if (call.cosines != nullptr && !is_value) rotate(call, table.positions[row], call.rotary_dims / 2, mine);
    T* to = at;
    if (!is_query) {
        const int kv_head = head - call.n_query_heads - (is_value ? n_kv_heads : 0);
        to = static_cast<T*>(is_value ? call.cache.values : call.cache.keys) +
             cache_at(call.cache, call.layer, slot, kv_head, table.places[row]);
    }
    for (int d = lane; d < dim; d += kWarp)
        to[d] = from_float<T>(mine[d]);
}

// One warp per row.
template <typename T> __global__ void sum_squares_of_rows(SquaresCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x), lane = lane_of_thread(), dim = call.cache.head_dim;
    const T* heads =
        static_cast<const T*>(call.qkv) + static_cast<std::size_t>(row) * static_cast<std::size_t>(call.stride);
    float queries = 0, keys = 0;
    for (int i = lane; i < (call.n_query_heads + call.cache.n_kv_heads) * dim; i += kWarp) {
        const int head = i / dim - call.n_query_heads;
        const float x = to_float(heads[i]);
        if (head < 0)
            queries += x * x;
        else if (call.counts_head[head] != 0)
            keys += x * x;
    }
    queries = warp_sum(queries);
    keys = warp_sum(keys);
    if (lane == 0) {
        call.squares[2 * row] = queries;
        call.squares[2 * row + 1] = keys;
    }
}

// ---- float32: a query and a block of keys ----

// Gives the place where a row's cache begins, in its own slot and in the slot that holds its shared prefix.
struct RowPlaces {
    std::size_t own, shared;
    int prefix_length;
    std::size_t stride;
    __device__ std::size_t at(int place) const {
        return (place < prefix_length ? shared : own) + static_cast<std::size_t>(place) * stride;
    }
};

__device__ RowPlaces row_places(const RowTable& table, const AttendCall& call, int row, int kv_head) {
    return {cache_at(call.cache, call.layer, table.slots[row], kv_head, 0),
            cache_at(call.cache, call.layer, table.prefix_slots[row], kv_head, 0), table.prefix_lengths[row],
            static_cast<std::size_t>(call.cache.head_stride)};
}

// Returns query . key. Each lane has its own key.
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

// Computes the part of a warp's query, [dims] in shared memory, over a block of keys. A value has at most kMaxValue
// numbers.
template <int kMaxValue>
__device__ void attend_block(const RowTable& table, const AttendCall& call, const float* query, const Reach& reach,
                             int row, int head, int block) {
    constexpr int kDimsOfLane = kMaxValue / kWarp;
    const int lane = lane_of_thread(), first_key = block * kKeyBlock, value_dims = padded_values(call.cache.value_dim);
    const RowPlaces places = row_places(table, call, row, call.kv_head_of[head]);
    const int position = position_of(table, call, row);
    int place[kKeysOfLane] = {};
    float weights[kKeysOfLane];
    float largest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kKeysOfLane; ++j) {
        const int key = first_key + j * kWarp + lane;
        weights[j] = -INFINITY;
        if (key < reach.begin || key >= reach.end) continue;
        place[j] = place_of(table, row, key);
        const float product =
            product_of(query, static_cast<const float*>(call.cache.keys) + places.at(place[j]), call.cache.head_stride);
        weights[j] = score_of(call, product, key, head, position);
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
                static_cast<const float*>(call.cache.values) + places.at(__shfl_sync(kAllLanes, place[j], of));
#pragma unroll
            for (int e = 0; e < kDimsOfLane; ++e)
                if (lane + e * kWarp < value_dims) values[e] += weight * value[lane + e * kWarp];
        }
    float* part = part_of(call, row, head, block);
    if (lane == 0) {
        part[0] = largest;
        part[1] = sum;
    }
#pragma unroll
    for (int e = 0; e < kDimsOfLane; ++e)
        if (lane + e * kWarp < value_dims) part[kPartHead + lane + e * kWarp] = values[e];
}

template <int kMaxKey, int kMaxValue> __global__ void attend_blocks(RowTable table, AttendCall call) {
    begin_kernel();
    __shared__ float queries[kWarps][kMaxKey];
    const int lane = lane_of_thread(), dim = call.cache.head_dim, dims = call.cache.head_stride;
    float* query = queries[warp_of_thread()];
    for (int i = warp_of_thread(); i < kQueriesOfBlock; i += kWarps) {
        const int number = static_cast<int>(blockIdx.y) * kQueriesOfBlock + i; // head by head, rows within
        const int head = number / table.rows, row = number % table.rows;
        if (head >= call.n_query_heads || table.slots[row] < 0) continue; // whole warps
        const float* q = static_cast<const float*>(call.qkv) +
                         static_cast<std::size_t>(row) * static_cast<std::size_t>(call.stride) +
                         static_cast<std::size_t>(head) * static_cast<std::size_t>(dim);
        __syncwarp(); // the previous query has been read
        for (int d = lane; d < dims; d += kWarp)
            query[d] = d < dim ? q[d] : 0.0f;
        __syncwarp();
        const Reach reach = reach_of(table, row, call.window);
        const BlockRange blocks = reach.blocks();
        for (int block = blocks.first + static_cast<int>(blockIdx.x); block < blocks.end;
             block += static_cast<int>(gridDim.x)) {
            attend_block<kMaxValue>(table, call, query, reach, row, head, block);
            __threadfence();
            __syncwarp();
            merge_complete<float, kMaxValue / 128>(call, lane == 0 ? row : -1, head, blocks, block);
        }
    }
}

// Returns the table's rows from `begin` on.
RowTable rows_from(const RowTable& table, int begin, int rows) {
    RowTable part = table;
    const auto skip = [begin](auto& column, int width) { column += column == nullptr ? 0 : begin * width; };
    for (const std::int32_t** column :
         {&part.tokens, &part.slots, &part.positions, &part.places, &part.n_keys, &part.prefix_slots,
          &part.prefix_lengths, &part.mask_begins, &part.source_slots, &part.source_lengths})
        skip(*column, 1);
    skip(part.masks, part.mask_words);
    part.rows = rows;
    return part;
}

void attend_float(void* stream, const RowTable& table, const AttendCall& call) {
    const dim3 blocks(static_cast<unsigned>(std::min(key_blocks(call.cache.capacity), kMaxBlocksInRow)),
                      blocks_for(static_cast<std::size_t>(table.rows * call.n_query_heads), kQueriesOfBlock));
    launch(stream, {blocks, kWarps * kWarp},
           call.cache.is_latent() ? attend_blocks<kMaxLatentDim, kMaxLatentValueDim>
                                  : attend_blocks<kMaxHeadDim, kMaxHeadDim>,
           table, call);
}

void check_head_dim(const CacheView& cache) {
    const int most = cache.is_latent() ? kMaxLatentDim : kMaxHeadDim;
    if (cache.head_dim < 1 || cache.head_dim > most || cache.value_dim > kMaxLatentValueDim)
        throw std::invalid_argument("heads of " + std::to_string(cache.head_dim) + " on a GPU: they may have up to " +
                                    std::to_string(kMaxHeadDim) + ", of latent attention " +
                                    std::to_string(kMaxLatentDim) + " with values of " +
                                    std::to_string(kMaxLatentValueDim));
}

} // namespace

void place_keys(void* stream, const RowTable& table, const PlaceCall& call) {
    check_head_dim(call.cache);
    const auto heads = static_cast<std::size_t>(call.n_query_heads + 2 * call.cache.n_kv_heads);
    const dim3 blocks(blocks_for(heads, kWarps), static_cast<unsigned>(table.rows));
    with_type(call.cache.type, [&]<typename T>(T*) {
        launch(stream, {blocks, kWarps * kWarp}, place_heads<T>, table, call);
    });
}

void sum_squares(void* stream, const SquaresCall& call) {
    with_type(call.cache.type, [&]<typename T>(T*) {
        launch(stream, {static_cast<unsigned>(call.rows), kWarp}, sum_squares_of_rows<T>, call);
    });
}

void attend(void* stream, const RowTable& table, const AttendCall& call) {
    check_head_dim(call.cache);
    const int at_once = attend_rows(call.n_query_heads, call.cache.value_dim, call.cache.capacity);
    for (int begin = 0; begin < table.rows; begin += at_once) {
        const auto from_row = [&](void* numbers, int stride) {
            return static_cast<std::byte*>(numbers) +
                   static_cast<std::size_t>(begin) * static_cast<std::size_t>(stride) * bytes_of(call.cache.type);
        };
        AttendCall part = call;
        part.qkv = from_row(call.qkv, call.stride);
        part.attended = from_row(call.attended, call.out_stride);
        const RowTable rows = rows_from(table, begin, std::min(at_once, table.rows - begin));
        const auto attend_rows_of = call.cache.type == NumberType::float32 ? attend_float
                                    : call.cache.is_latent()               ? attend_latent
                                                                           : attend_tensor_cores;
        attend_rows_of(stream, rows, part);
    }
}

} // namespace entrodraft::model::gpu
