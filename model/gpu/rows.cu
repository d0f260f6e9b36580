// Work on rows between the products: embedding, norms, activations, caps and conversions.
#include "model/gpu/activation.cuh"
#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kThreads = 256;

__device__ std::size_t place(int row, int stride, int column) {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(stride) + static_cast<std::size_t>(column);
}

// One block per row.
template <typename T> __global__ void embed_rows(RowTable table, Embed call) {
    begin_kernel();
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

// One block per row.
__global__ void order_columns(OrderCall call) {
    begin_kernel();
    const std::size_t row = place(static_cast<int>(blockIdx.x), call.stride, 0);
    for (int i = static_cast<int>(threadIdx.x); i < call.k; i += kThreads)
        call.out[row + static_cast<std::size_t>(i)] = call.x[row + static_cast<std::size_t>(call.order[i])];
}

// ---- norms: a block per row; the mean first, then the mean square of the rest, as on the CPU ----

constexpr int kNormThreads = 512;
constexpr int kHeldWidth = 4 * kNormThreads; // width of a row if each thread holds four numbers

__device__ float* row_of_x(const NormCall& call, int row) {
    return call.x + place(call.from_rows == nullptr ? row : call.from_rows[row],
                          call.x_stride == 0 ? call.width : call.x_stride, 0);
}

// Four consecutive numbers.
template <typename T> struct alignas(4 * sizeof(T)) Four { T numbers[4]; };

// Holds the row in registers, kHeld times four numbers per thread. Weights come from far: loads start before the sums.
template <typename Out, int kHeld>
__global__ void __launch_bounds__(kNormThreads) add_and_norm_held_rows(NormCall call) {
    start_next_kernel();
    const int row = static_cast<int>(blockIdx.x), width = call.width;
    const auto begin_of = [](int e) { return 4 * (static_cast<int>(threadIdx.x) + e * kNormThreads); };
    float held[kHeld][4] = {}, deltas[kHeld][4] = {}, weights[kHeld][4] = {}, biases[kHeld][4] = {};
    const auto load = [&]<typename T>(const T* from, float(&to)[kHeld][4]) {
#pragma unroll
        for (int e = 0; e < kHeld; ++e) {
            if (begin_of(e) >= width) continue;
            const Four<T> four = *reinterpret_cast<const Four<T>*>(from + begin_of(e));
            for (int i = 0; i < 4; ++i)
                to[e][i] = to_float(four.numbers[i]);
        }
    };
    const auto store = [&]<typename T>(T* to) {
#pragma unroll
        for (int e = 0; e < kHeld; ++e) {
            Four<T> four;
            for (int i = 0; i < 4; ++i)
                four.numbers[i] = from_float<T>(held[e][i]);
            if (begin_of(e) < width) *reinterpret_cast<Four<T>*>(to + begin_of(e)) = four;
        }
    };
    const auto for_each = [&](const auto& f) { // for each number of the row that this thread holds
#pragma unroll
        for (int e = 0; e < kHeld; ++e)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (begin_of(e) < width) f(e, i);
    };
    if (call.weight != nullptr) load(call.weight, weights); // no kernel writes them
    if (call.bias != nullptr) load(call.bias, biases);
    wait_for_inputs();
    float* x = row_of_x(call, row);
    load(x, held);
    const float* delta = call.delta == nullptr ? nullptr : call.delta + place(row, width, 0);
    if (delta != nullptr) load(delta, deltas);
    if (delta != nullptr) {
        for (int part = 1; part < call.n_parts; ++part) {
            float more[kHeld][4] = {};
            load(delta + static_cast<std::size_t>(part) * place(call.rows, width, 0), more);
            for_each([&](int e, int i) { deltas[e][i] += more[e][i]; });
        }
        for_each([&](int e, int i) { held[e][i] = call.replaces_x ? deltas[e][i] : held[e][i] + deltas[e][i]; });
        store(x);
    }
    if (call.out == nullptr) return; // the same on all threads
    Out* out = static_cast<Out*>(call.out) + place(row, call.out_stride, 0);
    if (call.weight == nullptr) return store(out);
    float mean = 0, squares = 0;
    if (call.norm == Norm::layer) {
        float sum = 0;
        for_each([&](int e, int i) { sum += held[e][i]; });
        mean = block_sum(sum) / static_cast<float>(width);
    }
    for_each([&](int e, int i) { squares += (held[e][i] - mean) * (held[e][i] - mean); });
    const float scale = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(width) + call.epsilon);
    for_each([&](int e, int i) { held[e][i] = (held[e][i] - mean) * scale * weights[e][i] + biases[e][i]; });
    store(out);
}

// For rows of any width, one number at a time.
template <typename Out> __global__ void add_and_norm_rows(NormCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x), first = static_cast<int>(threadIdx.x);
    float* x = row_of_x(call, row);
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
template <typename T> __global__ void activate_rows(ActivateCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.y);
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= call.width) return;
    const T* wide = static_cast<const T*>(call.wide) + place(row, call.wide_stride, call.gated ? gate_row(i) : i);
    float y = activated(call.activation, to_float(wide[0]));
    if (call.gated) y *= to_float(wide[kGateGroup]);
    static_cast<T*>(call.out)[place(row, call.out_stride, i)] = from_float<T>(y);
}

__device__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

__global__ void make_lstm_cells(LstmCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.y), width = call.width;
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= width) return;
    float* gates = call.gates + place(row, 4 * width, i);
    float* x = call.x + place(row, width, i);
    const float embedded = *x;
    float cell = sigmoid(gates[width] + embedded) * activated(call.activation, gates[3 * width]);
    if (call.cell != nullptr) cell += sigmoid(gates[0] + embedded) * call.cell[place(row, call.cell_stride, i)];
    gates[2 * width] = sigmoid(gates[2 * width] + embedded);
    *x = cell;
}

__global__ void make_lstm_outputs(LstmCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.y);
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= call.width) return;
    float* x = call.x + place(row, call.width, i);
    *x = activated(call.activation, *x) * call.gates[place(row, 4 * call.width, 2 * call.width + i)];
}

__global__ void run_cells(CellCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.y), width = call.width;
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= width) return;
    const float* gates = call.gates + place(row, 3 * width, i);
    const float cell = sigmoid(gates[0]) * tanhf(gates[width]);
    call.x[place(row, width, i)] = sigmoid(gates[2 * width]) * tanhf(cell);
}

__global__ void cap_numbers(float* x, std::size_t count, float cap) {
    begin_kernel();
    const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) x[i] = cap * tanhf(x[i] / cap);
}

} // namespace

void order_inputs(void* stream, const OrderCall& call) {
    launch(stream, {static_cast<unsigned>(call.rows), kThreads}, order_columns, call);
}

void embed(void* stream, const RowTable& table, const Embed& call) {
    with_type(call.type, [&]<typename T>(T*) {
        launch(stream, {static_cast<unsigned>(table.rows), kThreads}, embed_rows<T>, table, call);
    });
}

void add_and_norm(void* stream, const NormCall& call) {
    const auto lies_in_fours = [](const void* rows, std::size_t bytes, int stride) {
        return reinterpret_cast<std::uintptr_t>(rows) % (4 * bytes) == 0 && stride % 4 == 0;
    };
    const bool is_held = call.width <= 4 * kHeldWidth && call.width % 4 == 0 &&
                         lies_in_fours(call.x, sizeof(float), call.x_stride) &&
                         lies_in_fours(call.out, bytes_of(call.out_type), call.out_stride);
    const auto n_rows = static_cast<unsigned>(call.rows);
    with_type(call.out_type, [&]<typename Out>(Out*) {
        if (!is_held)
            launch(stream, {n_rows, kThreads}, add_and_norm_rows<Out>, call);
        else
            launch(stream, {n_rows, kNormThreads},
                   call.width <= 2 * kHeldWidth ? add_and_norm_held_rows<Out, 2> : add_and_norm_held_rows<Out, 4>,
                   call);
    });
}

void activate(void* stream, const ActivateCall& call) {
    with_type(call.type, [&]<typename T>(T*) {
        const dim3 blocks(blocks_for(static_cast<std::size_t>(call.width), kThreads), static_cast<unsigned>(call.rows));
        launch(stream, {blocks, kThreads}, activate_rows<T>, call);
    });
}

namespace {

__global__ void carry(CarryStatesCall call) {
    begin_kernel();
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), r = static_cast<int>(blockIdx.y);
    if (i >= call.width) return;
    const auto at = [&](int row) { return static_cast<std::size_t>(row) * static_cast<std::size_t>(call.width) + i; };
    call.features[at(r)] = call.hidden[at(call.parents[r])];
    if (call.states == nullptr) return;
    const int kept = *call.first - 1 + r;
    if (kept < call.n_states) call.states[at(kept)] = call.hidden[at(r)]; // padding is overwritten by the next pass
}

// One thread per number.
Grid grid_of(int width, int rows) {
    return {dim3(blocks_for(static_cast<std::size_t>(width), kThreads), static_cast<unsigned>(rows)), kThreads};
}

} // namespace

void lstm_cell(void* stream, const LstmCall& call) {
    launch(stream, grid_of(call.width, call.rows), make_lstm_cells, call);
}

void lstm_output(void* stream, const LstmCall& call) {
    launch(stream, grid_of(call.width, call.rows), make_lstm_outputs, call);
}

void run_cell(void* stream, const CellCall& call) {
    launch(stream, grid_of(call.width, call.rows), run_cells, call);
}

void carry_states(void* stream, const CarryStatesCall& call) {
    launch(stream, grid_of(call.width, call.rows), carry, call);
}

void soft_cap(void* stream, float* x, std::size_t count, float cap) {
    launch(stream, {blocks_for(count, kThreads), kThreads}, cap_numbers, x, count, cap);
}

} // namespace entrodraft::model::gpu
