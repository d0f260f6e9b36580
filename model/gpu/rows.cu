// What happens to rows between the products: looking up, norms, activations, caps and conversions.
#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kThreads = 256;

__device__ std::size_t place(int row, int stride, int column) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(stride) + static_cast<std::size_t>(column);
}

// A block a row.
template <typename T> __global__ void embed_rows(RowTable table, Embed call) {
    const int row = static_cast<int>(blockIdx.x);
    const bool is_there = table.slots[row] >= 0;
    const int token = table.tokens[row] - call.first_token;
    const bool is_mine = is_there && token >= 0 && token < call.n_tokens;
    const T* from = static_cast<const T*>(call.table) + place(is_mine ? token : 0, call.stride, 0);
    const float* position = call.positions == nullptr || !is_there
                                ? nullptr
                                : call.positions + place(table.positions[row] + call.position_offset, call.width, 0);
    for (int i = static_cast<int>(threadIdx.x); i < call.width; i += kThreads) {
        float x = is_mine ? to_float(from[i]) * call.scale : 0.0f;
        if (position != nullptr) x += position[i];
        call.x[place(row, call.width, i)] = x;
    }
}

// A block a row. Mean first, then the mean square of what is left, as on the CPU.
template <typename Out> __global__ void add_and_norm_rows(NormCall call) {
    const int row = static_cast<int>(blockIdx.x), first = static_cast<int>(threadIdx.x);
    float* x = call.x + place(call.from_rows == nullptr ? row : call.from_rows[row], call.width, 0);
    if (call.delta != nullptr) {
        const float* delta = call.delta + place(row, call.width, 0);
        const std::size_t part_stride = place(call.rows, call.width, 0);
        for (int i = first; i < call.width; i += kThreads) {
            float sum = delta[i];
            for (int part = 1; part < call.n_parts; ++part)
                sum += delta[static_cast<std::size_t>(part) * part_stride + static_cast<std::size_t>(i)];
            x[i] = call.replaces_x ? sum : x[i] + sum;
        }
    }
    if (call.out == nullptr) return; // the same on all threads
    Out* out = static_cast<Out*>(call.out) + place(row, call.out_stride, 0);
    if (call.weight == nullptr) {
        for (int i = first; i < call.width; i += kThreads)
            out[i] = from_float<Out>(x[i]);
        return;
    }
    const auto width = static_cast<float>(call.width);
    float mean = 0;
    if (call.norm == Norm::layer) {
        float sum = 0;
        for (int i = first; i < call.width; i += kThreads)
            sum += x[i];
        mean = block_sum(sum) / width;
    }
    float squares = 0;
    for (int i = first; i < call.width; i += kThreads)
        squares += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / sqrtf(block_sum(squares) / width + call.epsilon);
    for (int i = first; i < call.width; i += kThreads) {
        float y = (x[i] - mean) * scale * call.weight[i];
        if (call.bias != nullptr) y += call.bias[i];
        out[i] = from_float<Out>(y);
    }
}

__device__ float activated(Activation activation, float x) {
    switch (activation) {
    case Activation::silu:
        return x / (1.0f + expf(-x));
    case Activation::gelu:
        return 0.5f * x * erfcf(-x * 0.70710678118654752f);
    case Activation::gelu_tanh:
        return x / (1.0f + expf(-1.5957691216057308f * (x + 0.044715f * (x * x * x))));
    case Activation::relu:
        return x < 0.0f ? 0.0f : x; // NaN stays NaN
    }
    return 0;
}

template <typename T> __global__ void activate_rows(ActivateCall call) {
    const int row = static_cast<int>(blockIdx.y);
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= call.width) return;
    const T* wide = static_cast<const T*>(call.wide) + place(row, call.wide_stride, 0);
    float y = activated(call.activation, to_float(wide[i]));
    if (call.gated) y *= to_float(wide[call.width + i]);
    static_cast<T*>(call.out)[place(row, call.out_stride, i)] = from_float<T>(y);
}

__global__ void cap_numbers(float* x, std::size_t count, float cap) {
    const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) x[i] = cap * tanhf(x[i] / cap);
}

} // namespace

void embed(void* stream, const RowTable& table, const Embed& call) {
    with_type(call.type, [&]<typename T>(T*) {
        launch(stream, {static_cast<unsigned>(table.rows), kThreads}, embed_rows<T>, table, call);
    });
}

void add_and_norm(void* stream, const NormCall& call) {
    with_type(call.out_type, [&]<typename Out>(Out*) {
        launch(stream, {static_cast<unsigned>(call.rows), kThreads}, add_and_norm_rows<Out>, call);
    });
}

void activate(void* stream, const ActivateCall& call) {
    with_type(call.type, [&]<typename T>(T*) {
        const dim3 blocks(blocks_for(static_cast<std::size_t>(call.width), kThreads), static_cast<unsigned>(call.rows));
        launch(stream, {blocks, kThreads}, activate_rows<T>, call);
    });
}

void soft_cap(void* stream, float* x, std::size_t count, float cap) {
    launch(stream, {blocks_for(count, kThreads), kThreads}, cap_numbers, x, count, cap);
}

} // namespace entrodraft::model::gpu
