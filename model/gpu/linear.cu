// y = x w^T + bias for few rows: what a decode pass spends its time on, bound by reading w once.
//
// 16-bit weights: a block makes 16 or 32 outputs of all rows; its warps share out k in chunks of 32. A quad of lanes
// reads 64 bytes of a weight row that lie together, 16 a lane, and multiplies them as two steps of the tensor core:
// which k stands where inside a step does not matter as long as weights and activations agree, so neither is shuffled
// nor staged. Warps' sums are added in order. float32: a warp an output, lanes along k.
#include "entrodraft/model/gpu/kernels.h"
#include "entrodraft/model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kTile = 16;      // outputs of a tensor-core step
constexpr int kRowGroup = 8;   // rows of a tensor-core step
constexpr int kChunk = 32;     // of k, a warp at a time
constexpr int kAhead = 4;      // chunks whose loads are under way together
constexpr int kMostGroups = 2; // row groups of a launch: 16 rows

struct Part {
    Linear call;
    int first_row; // of this launch
};

__device__ void store(const Linear& call, int row, int n, float sum) {
    if (row >= call.rows || n >= call.n) return;
    if (call.bias != nullptr) sum += call.bias[n];
    const std::size_t at =
        static_cast<std::size_t>(row) * static_cast<std::size_t>(call.y_stride) + static_cast<std::size_t>(n);
    switch (call.y_type) {
    case NumberType::float32:
        static_cast<float*>(call.y)[at] = call.add ? static_cast<float*>(call.y)[at] + sum : sum;
        return;
    case NumberType::bfloat16:
        static_cast<__nv_bfloat16*>(call.y)[at] = from_float<__nv_bfloat16>(sum);
        return;
    case NumberType::float16:
        static_cast<__half*>(call.y)[at] = from_float<__half>(sum);
        return;
    }
}

// Rows that are not there are read as row 0 and not stored; so are outputs.
template <typename T, int kTiles, int kGroups, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) multiply_16_bit(Part part) {
    const Linear& call = part.call;
    const int lane = lane_of_thread(), warp = warp_of_thread(), g = lane / 4, t = lane % 4;
    const int first_output = static_cast<int>(blockIdx.x) * kTile * kTiles;
    const auto stride = static_cast<std::size_t>(call.stride);
    const T* w[kTiles][2];
    const T* x[kGroups];
    for (int i = 0; i < kTiles; ++i)
        for (int half = 0; half < 2; ++half) {
            const int n = first_output + i * kTile + half * 8 + g;
            w[i][half] = static_cast<const T*>(call.w) + static_cast<std::size_t>(n < call.n ? n : 0) * stride + 8 * t;
        }
    for (int i = 0; i < kGroups; ++i) {
        const int row = part.first_row + i * kRowGroup + g;
        x[i] = static_cast<const T*>(call.x) + static_cast<std::size_t>(row < call.rows ? row : 0) * stride + 8 * t;
    }

    float sums[kTiles][kGroups][4] = {};
    const int n_chunks = call.stride / kChunk;
    for (int first = warp; first < n_chunks; first += kWarps * kAhead) {
        uint4 weights[kAhead][kTiles][2];
        uint4 inputs[kAhead][kGroups];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
            const int chunk = first + a * kWarps;
            if (chunk >= n_chunks) continue;
            const std::size_t k = static_cast<std::size_t>(chunk) * kChunk;
#pragma unroll
            for (int i = 0; i < kTiles; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    weights[a][i][half] = load_streaming(w[i][half] + k);
#pragma unroll
            for (int i = 0; i < kGroups; ++i)
                inputs[a][i] = *reinterpret_cast<const uint4*>(x[i] + k);
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
            if (first + a * kWarps >= n_chunks) continue; // the same on all lanes
#pragma unroll
            for (int i = 0; i < kTiles; ++i) {
                const uint4 low = weights[a][i][0], high = weights[a][i][1];
                const unsigned a0[4] = {low.x, high.x, low.y, high.y}, a1[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
                for (int j = 0; j < kGroups; ++j) {
                    const unsigned b0[2] = {inputs[a][j].x, inputs[a][j].y}, b1[2] = {inputs[a][j].z, inputs[a][j].w};
                    multiply_16x8x16<T>(sums[i][j], a0, b0);
                    multiply_16x8x16<T>(sums[i][j], a1, b1);
                }
            }
        }
    }

    // [warp][tile][group][4][lane]
    constexpr int kOfWarp = kTiles * kGroups * 4 * kWarp;
    auto* shared = reinterpret_cast<float*>(dynamic_shared());
    for (int i = 0; i < kTiles; ++i)
        for (int j = 0; j < kGroups; ++j)
            for (int c = 0; c < 4; ++c)
                shared[warp * kOfWarp + ((i * kGroups + j) * 4 + c) * kWarp + lane] = sums[i][j][c];
    __syncthreads();
    for (int at = static_cast<int>(threadIdx.x); at < kOfWarp; at += kWarps * kWarp) {
        float sum = 0;
        for (int of = 0; of < kWarps; ++of)
            sum += shared[of * kOfWarp + at];
        const int holder = at % kWarp, c = at / kWarp % 4, j = at / kWarp / 4 % kGroups, i = at / kWarp / 4 / kGroups;
        const int n = first_output + i * kTile + holder / 4 + 8 * (c / 2);
        const int row = part.first_row + j * kRowGroup + 2 * (holder % 4) + c % 2;
        store(call, row, n, sum);
    }
}

template <typename T, int kTiles, int kGroups, int kWarps> void launch_16_bit(void* stream, const Part& part) {
    constexpr std::size_t kShared = sizeof(float) * kWarps * kTiles * kGroups * 4 * kWarp;
    static_assert(kShared <= 48 * 1024);
    launch(stream, {blocks_for(static_cast<std::size_t>(part.call.n), kTile * kTiles), kWarps * kWarp, kShared},
           multiply_16_bit<T, kTiles, kGroups, kWarps>, part);
}

// How k is shared out, and with it the order of a sum, follows from the matrix's shape alone, not from the rows.
template <typename T> void multiply_all_16_bit(void* stream, const Linear& call) {
    constexpr int kManyOutputs = 8192; // then blocks of 32 outputs still fill every multiprocessor several times
    for (int first = 0; first < call.rows; first += kRowGroup * kMostGroups) {
        const Part part = {call, first};
        const bool one_group = call.rows - first <= kRowGroup;
        if (call.n >= kManyOutputs)
            one_group ? launch_16_bit<T, 2, 1, 8>(stream, part) : launch_16_bit<T, 2, 2, 8>(stream, part);
        else
            one_group ? launch_16_bit<T, 1, 1, 8>(stream, part) : launch_16_bit<T, 1, 2, 8>(stream, part);
    }
}

constexpr int kFloatWarps = 4;
constexpr int kFloatRows = 8;

// One warp an output; lane l adds k = 4 l, 4 l + 128, ... in order.
__global__ void multiply_float(Part part) {
    const Linear& call = part.call;
    const int n = static_cast<int>(blockIdx.x) * kFloatWarps + warp_of_thread();
    if (n >= call.n) return; // a whole warp
    const auto stride = static_cast<std::size_t>(call.stride);
    const float* w = static_cast<const float*>(call.w) + static_cast<std::size_t>(n) * stride;
    float sums[kFloatRows] = {};
    for (int k = 4 * lane_of_thread(); k < call.stride; k += 4 * kWarp) {
        const float4 of_w = *reinterpret_cast<const float4*>(w + k);
        for (int i = 0; i < kFloatRows && part.first_row + i < call.rows; ++i) {
            const float* x = static_cast<const float*>(call.x) + static_cast<std::size_t>(part.first_row + i) * stride;
            const float4 of_x = *reinterpret_cast<const float4*>(x + k);
            sums[i] += of_w.x * of_x.x + of_w.y * of_x.y + of_w.z * of_x.z + of_w.w * of_x.w;
        }
    }
    for (int i = 0; i < kFloatRows; ++i) {
        const float sum = warp_sum(sums[i]);
        if (lane_of_thread() == 0) store(call, part.first_row + i, n, sum);
    }
}

} // namespace

std::size_t bytes_of(NumberType type) {
    return type == NumberType::float32 ? sizeof(float) : sizeof(std::uint16_t);
}

void linear(void* stream, const Linear& call) {
    switch (call.type) {
    case NumberType::float32:
        for (int first = 0; first < call.rows; first += kFloatRows)
            launch(stream, {blocks_for(static_cast<std::size_t>(call.n), kFloatWarps), kFloatWarps * kWarp},
                   multiply_float, Part{call, first});
        return;
    case NumberType::bfloat16:
        return multiply_all_16_bit<__nv_bfloat16>(stream, call);
    case NumberType::float16:
        return multiply_all_16_bit<__half>(stream, call);
    }
}

} // namespace entrodraft::model::gpu
