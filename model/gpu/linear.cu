// y = x w^T + bias for few rows: what a decode pass spends its time on, bound by reading w once.
//
// 16-bit weights: a block makes 16 or 32 outputs of all rows; its warps share out k in chunks of 32. A quad of lanes
// reads 64 bytes of a weight row that lie together, 16 a lane, and multiplies them as two steps of the tensor core:
// which k is where inside a step does not matter as long as weights and activations agree, so neither is shuffled
// nor staged. Warps' sums are added in order, so that a row's bits hang neither on the rows beside it nor on how many
// groups of rows a launch has: 1 or 2 for decoding, 8 for a prompt. int8 and float8 weights: the same in chunks of 64,
// a lane's 16 bytes widened to the activations' type on the way, which holds each of them exactly. float32: a warp an
// output, lanes along k.
#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

#include <stdexcept>
#include <type_traits>

namespace entrodraft::model::gpu {

namespace {

constexpr int kTile = 16;        // outputs of a tensor-core step
constexpr int kRowGroup = 8;     // rows of a tensor-core step
constexpr int kDecodeGroups = 2; // row groups of a launch for decoding: 16 rows
constexpr int kPromptGroups = 8; // of one that reads a prompt: 64 rows for one read of the weights

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

// Adds up what the warps of a block have of its outputs, in order, and stores it.
template <int kTiles, int kGroups, int kWarps>
__device__ void add_warps(const Part& part, const float (&sums)[kTiles][kGroups][4]) {
    const Linear& call = part.call;
    const int lane = lane_of_thread(), warp = warp_of_thread();
    const int first_output = static_cast<int>(blockIdx.x) * kTile * kTiles;
    // A tile at a time: [warp][group][4][lane].
    constexpr int kOfWarp = kGroups * 4 * kWarp;
    auto* shared = reinterpret_cast<float*>(dynamic_shared());
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
        if (i > 0) __syncthreads(); // the tile before has been read
        for (int j = 0; j < kGroups; ++j)
            for (int c = 0; c < 4; ++c)
                shared[warp * kOfWarp + (j * 4 + c) * kWarp + lane] = sums[i][j][c];
        __syncthreads();
        for (int at = static_cast<int>(threadIdx.x); at < kOfWarp; at += kWarps * kWarp) {
            float sum = 0;
            for (int of = 0; of < kWarps; ++of)
                sum += shared[of * kOfWarp + at];
            const int holder = at % kWarp, c = at / kWarp % 4, j = at / kWarp / 4;
            const int n = first_output + i * kTile + holder / 4 + 8 * (c / 2);
            const int row = part.first_row + j * kRowGroup + 2 * (holder % 4) + c % 2;
            store(call, row, n, call.scales != nullptr && n < call.n ? sum * call.scales[n] : sum);
        }
    }
}

struct Float8 {
    unsigned char bits;
};

// Number i of four int8, each w + 128: 2^23 + w + 128 as float32, less the first two.
__device__ float number_of(signed char, unsigned four, int i) {
    return __uint_as_float(__byte_perm(four, 0x4b000000u, 0x7440u + static_cast<unsigned>(i))) - 8388736.0f;
}
// Of four float8: exponent and fraction where float32 has them, less the difference of the biases.
__device__ float number_of(Float8, unsigned four, int i) {
    const unsigned bits = four >> (8 * i);
    return __uint_as_float((bits & 0x80u) << 24 | (bits & 0x7fu) << 20) * 0x1p120f;
}

// Four numbers of 8 bits as two pairs of T.
template <typename T, typename W> __device__ void widen(unsigned four, unsigned (&pairs)[2]) {
    T values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        values[i] = from_float<T>(number_of(W{}, four, i));
    memcpy(pairs, values, sizeof pairs);
}

// The four weights of a lane in a tensor-core step, from the 16 bytes that it has read.
template <typename T, typename W> __device__ void weights_of_step(const uint4& read, int step, unsigned (&pairs)[2]) {
    const unsigned words[4] = {read.x, read.y, read.z, read.w};
    if constexpr (sizeof(W) == 1) {
        constexpr unsigned kLift = std::is_same_v<W, signed char> ? 0x80808080u : 0u;
        widen<T, W>(words[step] ^ kLift, pairs);
    } else {
        pairs[0] = words[2 * step];
        pairs[1] = words[2 * step + 1];
    }
}

// Weights of type W, T itself, int8 or Float8. Rows that are not there are read as row 0 and not stored; so are
// outputs.
template <typename T, typename W, int kTiles, int kGroups, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) multiply_tensor_cores(Part part) {
    constexpr int kOfLane = 16 / static_cast<int>(sizeof(W)); // weights that a lane reads at once
    constexpr int kSteps = kOfLane / 4;
    constexpr int kInputs = kOfLane / 8;                              // reads of 8 activations
    constexpr int kChunk = 4 * kOfLane;                               // of k, a warp at a time
    constexpr int kAhead = kGroups > kDecodeGroups ? 1 : 4 / kInputs; // chunks whose loads are under way together
    const Linear& call = part.call;
    const int lane = lane_of_thread(), warp = warp_of_thread(), g = lane / 4, t = lane % 4;
    const int first_output = static_cast<int>(blockIdx.x) * kTile * kTiles;
    const auto stride = static_cast<std::size_t>(call.stride);
    const W* w[kTiles][2];
    const T* x[kGroups];
    for (int i = 0; i < kTiles; ++i)
        for (int half = 0; half < 2; ++half) {
            const int n = first_output + i * kTile + half * 8 + g;
            w[i][half] =
                static_cast<const W*>(call.w) + static_cast<std::size_t>(n < call.n ? n : 0) * stride + kOfLane * t;
        }
    for (int i = 0; i < kGroups; ++i) {
        const int row = part.first_row + i * kRowGroup + g;
        x[i] =
            static_cast<const T*>(call.x) + static_cast<std::size_t>(row < call.rows ? row : 0) * stride + kOfLane * t;
    }

    float sums[kTiles][kGroups][4] = {};
    const int n_chunks = call.stride / kChunk;
    for (int first = warp; first < n_chunks; first += kWarps * kAhead) {
        uint4 weights[kAhead][kTiles][2];
        uint4 inputs[kAhead][kGroups][kInputs];
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
#pragma unroll
                for (int read = 0; read < kInputs; ++read)
                    inputs[a][i][read] = *reinterpret_cast<const uint4*>(x[i] + k + 8 * read);
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
            if (first + a * kWarps >= n_chunks) continue; // the same on all lanes
#pragma unroll
            for (int i = 0; i < kTiles; ++i)
#pragma unroll
                for (int step = 0; step < kSteps; ++step) {
                    unsigned low[2], high[2];
                    weights_of_step<T, W>(weights[a][i][0], step, low);
                    weights_of_step<T, W>(weights[a][i][1], step, high);
                    const unsigned of_w[4] = {low[0], high[0], low[1], high[1]};
#pragma unroll
                    for (int j = 0; j < kGroups; ++j) {
                        const uint4 eight = inputs[a][j][step / 2];
                        const unsigned of_x[2] = {step % 2 == 0 ? eight.x : eight.z, step % 2 == 0 ? eight.y : eight.w};
                        multiply_16x8x16<T>(sums[i][j], of_w, of_x);
                    }
                }
        }
    }
    add_warps<kTiles, kGroups, kWarps>(part, sums);
}

template <typename T, int kTiles, int kGroups, int kWarps> void launch_tiles(void* stream, const Part& part) {
    constexpr std::size_t kShared = sizeof(float) * kWarps * kGroups * 4 * kWarp;
    static_assert(kShared <= 48 * 1024);
    launch(stream, {blocks_for(static_cast<std::size_t>(part.call.n), kTile * kTiles), kWarps * kWarp, kShared},
           part.call.scales == nullptr ? multiply_tensor_cores<T, T, kTiles, kGroups, kWarps>
           : part.call.is_float8       ? multiply_tensor_cores<T, Float8, kTiles, kGroups, kWarps>
                                       : multiply_tensor_cores<T, signed char, kTiles, kGroups, kWarps>,
           part);
}

// How k is shared out, and with it the order of a sum, follows from the matrix's shape alone, not from the rows.
template <typename T> void multiply_tiles(void* stream, const Linear& call) {
    constexpr int kManyOutputs = 8192; // then blocks of 32 outputs still fill every multiprocessor several times
    constexpr int kDecodeRows = kRowGroup * kDecodeGroups, kPromptRows = kRowGroup * kPromptGroups;
    for (int first = 0, taken = 0; first < call.rows; first += taken) {
        const Part part = {call, first};
        const int left = call.rows - first;
        taken = left > 2 * kDecodeRows ? kPromptRows : kDecodeRows;
        if (taken == kPromptRows) {
            launch_tiles<T, 2, kPromptGroups, 8>(stream, part);
            continue;
        }
        const bool one_group = left <= kRowGroup;
        if (call.n >= kManyOutputs)
            one_group ? launch_tiles<T, 2, 1, 8>(stream, part) : launch_tiles<T, 2, 2, 8>(stream, part);
        else
            one_group ? launch_tiles<T, 1, 1, 8>(stream, part) : launch_tiles<T, 1, 2, 8>(stream, part);
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
    for (int i = 0; i < kFloatRows && part.first_row + i < call.rows; ++i) {
        const float sum = warp_sum(sums[i]);
        if (lane_of_thread() == 0) store(call, part.first_row + i, n, sum);
    }
}

} // namespace

std::size_t bytes_of(NumberType type) {
    return type == NumberType::float32 ? sizeof(float) : sizeof(std::uint16_t);
}

void linear(void* stream, const Linear& call) {
    if (call.scales != nullptr && call.type == NumberType::float32)
        throw std::invalid_argument("8-bit weights take activations of 16 bits");
    switch (call.type) {
    case NumberType::float32:
        for (int first = 0; first < call.rows; first += kFloatRows)
            launch(stream, {blocks_for(static_cast<std::size_t>(call.n), kFloatWarps), kFloatWarps * kWarp},
                   multiply_float, Part{call, first});
        return;
    case NumberType::bfloat16:
        return multiply_tiles<__nv_bfloat16>(stream, call);
    case NumberType::float16:
        return multiply_tiles<__half>(stream, call);
    }
}

} // namespace entrodraft::model::gpu
