// Kernels before and after attention itself in latent attention (DeepSeek-V2). Before: they normalise latent vectors,
// store them in the cache, and map queries to the latent space. After: they compute values from the weighted sums of
// latent vectors. See cpu/latent.h.
#include "model/gpu/attention_steps.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kPlaceWarps = 4;
constexpr int kVectorThreads = 256;

// One block per row.
template <typename T> __global__ void norm_vector_rows(NormVectorsCall call) {
    begin_kernel();
    const auto row = static_cast<std::size_t>(blockIdx.x);
    const T* from = static_cast<const T*>(call.from) + row * static_cast<std::size_t>(call.from_stride);
    T* to = static_cast<T*>(call.to) + row * static_cast<std::size_t>(call.to_stride);
    float squares = 0;
    for (int i = static_cast<int>(threadIdx.x); i < call.width; i += kVectorThreads)
        squares += to_float(from[i]) * to_float(from[i]);
    const float scale = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(call.width) + call.epsilon);
    for (int i = static_cast<int>(threadIdx.x); i < call.width; i += kVectorThreads)
        to[i] = from_float<T>(to_float(from[i]) * scale * call.weight[i]);
}

// One warp per query head, for the head's rotated part only; after these, one warp for the row's vector.
template <typename T> __global__ void place_latent_heads(RowTable table, PlaceLatentsCall call) {
    begin_kernel();
    __shared__ float heads[kPlaceWarps][kMaxLatentDim];
    const int row = static_cast<int>(blockIdx.y), lane = lane_of_thread();
    const int head = static_cast<int>(blockIdx.x) * kPlaceWarps + warp_of_thread();
    const int rank = call.cache.value_dim, dim = call.cache.head_dim, rotated_dim = dim - rank;
    const int slot = table.slots[row];
    if (head > call.n_query_heads || slot < 0) return; // whole warps
    const bool is_query = head < call.n_query_heads;
    const auto at = [row](auto* rows, int stride) {
        return rows + static_cast<std::size_t>(row) * static_cast<std::size_t>(stride);
    };
    const T* from = is_query ? at(static_cast<const T*>(call.queries), call.query_stride)
                             : at(static_cast<const T*>(call.vectors), call.vector_stride);
    const int first = is_query ? (head + 1) * call.query_dim - dim : 0; // a query ends with the rotated part too
    float* mine = heads[warp_of_thread()];
    float squares = 0;
    for (int d = lane + (is_query ? rank : 0); d < dim; d += kWarp) {
        mine[d] = to_float(from[first + d]);
        if (d < rank) squares += mine[d] * mine[d];
    }
    if (!is_query) {
        const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(rank) + call.norm_epsilon);
        for (int d = lane; d < rank; d += kWarp)
            mine[d] *= scale * call.norm[d];
    }
    __syncwarp();
    rotate(call, table.positions[row], rotated_dim / 2, mine + rank);
    T* to = is_query ? at(static_cast<T*>(call.absorbed), call.absorbed_stride) + head * call.cache.head_stride
                     : static_cast<T*>(call.cache.keys) + cache_at(call.cache, call.layer, slot, 0, table.places[row]);
    for (int d = lane + (is_query ? rank : 0); d < dim; d += kWarp)
        to[d] = from_float<T>(mine[d]);
}

// ---- products of each head with its own matrix ----

constexpr int kHeadOutputs = 16;    // per warp: the rows of a tensor-core step
constexpr int kHeadRowGroup = 8;    // rows: the columns of that step
constexpr int kHeadChunksAhead = 4; // chunks of 32 inputs, under way together

template <typename T> __device__ T* head_row(void* rows, int stride, int row, int step, int head) {
    return static_cast<T*>(rows) + static_cast<std::size_t>(row) * static_cast<std::size_t>(stride) +
           static_cast<std::size_t>(head) * static_cast<std::size_t>(step);
}

// A warp makes some outputs of a head, for kGroups groups of rows, as linear.cu does. A quad of lanes reads 64
// consecutive bytes; the order of inputs inside a step does not matter.
template <typename T, int kGroups> __global__ void multiply_heads(HeadLinear call) {
    start_next_kernel();
    const int lane = lane_of_thread(), g = lane / 4, t = lane % 4, head = static_cast<int>(blockIdx.y);
    const int first_output = static_cast<int>(blockIdx.x) * kHeadOutputs;
    const int first_row = static_cast<int>(blockIdx.z) * kHeadRowGroup * kGroups;
    const int n_chunks = (call.k + 31) / 32;
    const T* w[2];
    for (int half = 0; half < 2; ++half) {
        const int n = first_output + 8 * half + g;
        w[half] =
            static_cast<const T*>(call.w) +
            static_cast<std::size_t>(head * call.n + (n < call.n ? n : 0)) * static_cast<std::size_t>(call.stride) +
            8 * t;
    }
    uint4 weights[kHeadChunksAhead][2];
    const auto load_weights = [&](int first) {
#pragma unroll
        for (int a = 0; a < kHeadChunksAhead; ++a)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                if (first + a < n_chunks) weights[a][half] = load_streaming(w[half] + 32 * (first + a));
    };
    load_weights(0); // no kernel writes them
    wait_for_inputs();
    float sums[kGroups][4] = {};
#pragma unroll 1
    for (int first = 0; first < n_chunks; first += kHeadChunksAhead) {
        if (first > 0) load_weights(first);
#pragma unroll
        for (int a = 0; a < kHeadChunksAhead; ++a) {
            if (first + a >= n_chunks) break; // the same on all lanes
#pragma unroll
            for (int j = 0; j < kGroups; ++j) {
                const int row = first_row + j * kHeadRowGroup + g;
                const T* x = head_row<T>(call.x, call.x_stride, row < call.rows ? row : 0, call.x_step, head);
                const uint4 eight = eighth_at(x, 32 * (first + a) + 8 * t, call.k);
#pragma unroll
                for (int step = 0; step < 2; ++step) {
                    const unsigned of_w[4] = {word_of(weights[a][0], 2 * step), word_of(weights[a][1], 2 * step),
                                              word_of(weights[a][0], 2 * step + 1),
                                              word_of(weights[a][1], 2 * step + 1)};
                    const unsigned of_x[2] = {word_of(eight, 2 * step), word_of(eight, 2 * step + 1)};
                    multiply_16x8x16<T>(sums[j], of_w, of_x);
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < kGroups; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int n = first_output + g + 8 * (c / 2), row = first_row + j * kHeadRowGroup + 2 * t + c % 2;
            if (n < call.n && row < call.rows)
                head_row<T>(call.y, call.y_stride, row, call.y_step, head)[n] = from_float<T>(sums[j][c]);
        }
}

// float32: one warp per output, for kHeadRowGroup rows.
__global__ void multiply_float_heads(HeadLinear call) {
    begin_kernel();
    const int head = static_cast<int>(blockIdx.y), first_row = static_cast<int>(blockIdx.z) * kHeadRowGroup;
    const int n = static_cast<int>(blockIdx.x) * kPlaceWarps + warp_of_thread();
    if (n >= call.n) return; // a whole warp
    const float* w = static_cast<const float*>(call.w) +
                     static_cast<std::size_t>(head * call.n + n) * static_cast<std::size_t>(call.stride);
    for (int row = first_row; row < first_row + kHeadRowGroup && row < call.rows; ++row) {
        const float* x = head_row<float>(call.x, call.x_stride, row, call.x_step, head);
        float sum = 0;
        for (int i = lane_of_thread(); i < call.k; i += kWarp)
            sum += w[i] * x[i];
        sum = warp_sum(sum);
        if (lane_of_thread() == 0) head_row<float>(call.y, call.y_stride, row, call.y_step, head)[n] = sum;
    }
}

} // namespace

void norm_vectors(void* stream, const NormVectorsCall& call) {
    with_type(call.type, [&]<typename T>(T*) {
        launch(stream, {static_cast<unsigned>(call.rows), kVectorThreads}, norm_vector_rows<T>, call);
    });
}

void place_latents(void* stream, const RowTable& table, const PlaceLatentsCall& call) {
    const dim3 blocks(blocks_for(static_cast<std::size_t>(call.n_query_heads) + 1, kPlaceWarps),
                      static_cast<unsigned>(table.rows));
    with_type(call.cache.type, [&]<typename T>(T*) {
        launch(stream, {blocks, kPlaceWarps * kWarp}, place_latent_heads<T>, table, call);
    });
}

void head_linear(void* stream, const HeadLinear& call) {
    const auto blocks = [&](int outputs, int rows) {
        return dim3(blocks_for(static_cast<std::size_t>(call.n), static_cast<std::size_t>(outputs)),
                    static_cast<unsigned>(call.n_heads),
                    blocks_for(static_cast<std::size_t>(call.rows), static_cast<std::size_t>(rows)));
    };
    const auto on_tensor_cores = [&]<typename T>(T*) {
        call.rows <= kHeadRowGroup
            ? launch(stream, {blocks(kHeadOutputs, kHeadRowGroup), kWarp}, multiply_heads<T, 1>, call)
            : launch(stream, {blocks(kHeadOutputs, 4 * kHeadRowGroup), kWarp}, multiply_heads<T, 4>, call);
    };
    switch (call.type) {
    case NumberType::float32:
        return launch(stream, {blocks(kPlaceWarps, kHeadRowGroup), kPlaceWarps * kWarp}, multiply_float_heads, call);
    case NumberType::bfloat16:
        return on_tensor_cores(static_cast<__nv_bfloat16*>(nullptr));
    case NumberType::float16:
        return on_tensor_cores(static_cast<__half*>(nullptr));
    }
}

} // namespace entrodraft::model::gpu
