// Linear attention: the recurrence of gated DeltaNet with its short convolution, norm and gates. Also the gate on the
// attention output of other layers. Columns of a state do not depend on one another. A block has some columns of a key
// head in registers and applies inputs row by row. To make the base and the front, it applies inputs of earlier passes
// in the same way as those of the pass. So all results have the same bits.
#include "model/gpu/activation.cuh"
#include "model/gpu/delta_net.h"
#include "model/gpu/simt.cuh"

#include <stdexcept>
#include <type_traits>

namespace entrodraft::model::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kColumns = kThreads / kKeyLanes; // per block
constexpr int kTileSteps = 16;                 // steps that a block convolves before it applies them

// The warps of a row. Each takes a value head, and together they store the row's inputs.
constexpr int kReadWarps = 4;

template <typename T> __device__ const T* row_at(const void* rows, int row, int stride) {
    return static_cast<const T*>(rows) + static_cast<std::size_t>(row) * static_cast<std::size_t>(stride);
}

// Number of blocks per key head.
ENTRODRAFT_ON_DEVICES constexpr int blocks_of_head(const StatesView& states) {
    return (states.value_columns() + kColumns - 1) / kColumns;
}

__device__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

template <typename T> __device__ T* input_at(const StatesView& states, int layer, int slot, int position) {
    const auto number =
        (static_cast<std::size_t>(slot) * static_cast<std::size_t>(states.n_layers) + static_cast<std::size_t>(layer)) *
            static_cast<std::size_t>(states.n_inputs) +
        static_cast<std::size_t>(position % states.n_inputs);
    return static_cast<T*>(states.inputs) + number * static_cast<std::size_t>(states.input_stride);
}

// Returns where an input's number lies in a projected row. There the gates of values follow the convolved numbers.
__device__ int projected_at(const StatesView& states, int i) {
    const int of_head = states.convolved_size(), convolved = states.n_key_heads * of_head;
    return i < convolved ? i + i / of_head * states.value_columns() : i + states.n_key_heads * states.value_columns();
}

// A block's part of a segment: the inputs that it applies, in order.
struct Walk {
    DeltaSegment segment;
    int first_row = 0, cached = 0; // the row at position `cached` and all later rows are the pass's
    int from = 0, n_replayed = 0;  // positions of earlier passes
    int n_steps = 0;               // replayed positions included
};

struct Step {
    int position, row, load, save;
};

__device__ Walk walk_of_block(const RowTable& table, const DeltaTable& segments, bool of_base) {
    Walk walk;
    walk.segment = segments.segments[segments.in_loop ? *segments.n_segments - 1 : static_cast<int>(blockIdx.y)];
    const DeltaSegment& segment = walk.segment;
    walk.first_row = segments.in_loop ? 0 : segment.first_row;
    walk.cached = table.places[walk.first_row];
    if (of_base) {
        walk.from = segment.base_from;
        walk.n_steps = walk.n_replayed = segment.copies_base != 0 ? 0 : segment.base_to - segment.base_from;
        return walk;
    }
    walk.from = segments.in_loop ? segment.front_to : segment.copies_base != 0 ? segment.base_from : segment.front_from;
    walk.n_replayed = (segments.in_loop ? walk.cached : segment.begin) - walk.from;
    walk.n_steps = walk.n_replayed + (segments.in_loop ? 1 : segment.n_steps > 0 ? segment.n_steps : segment.n_rows);
    return walk;
}

__device__ Step step_of(const Walk& walk, const DeltaTable& segments, int i) {
    if (i < walk.n_replayed) return {walk.from + i, -1, DeltaTreeStep::kNone, DeltaTreeStep::kNone};
    const int number = i - walk.n_replayed;
    if (walk.segment.n_steps == 0 || segments.in_loop)
        return {walk.cached + number, walk.first_row + number, DeltaTreeStep::kNone, DeltaTreeStep::kNone};
    const DeltaTreeStep& step = segments.steps[walk.segment.first_step + number];
    return {step.position, step.row, step.load, step.save};
}

__device__ int parent_of(const Walk& walk, const DeltaTable& segments, int position) {
    const int node = position - walk.segment.begin;
    if (walk.segment.n_steps == 0 || node < 0) return position - 1;
    return segments.steps[walk.segment.first_step + node].parent;
}

// A row's numbers of a key head: those that are convolved, and the gates of its value heads.
template <typename T> struct Input {
    const T* convolved;
    const T* gates;
};

template <typename T> __device__ Input<T> input_of(const DeltaNetCall& call, const Walk& walk, int head, int position) {
    const StatesView& states = call.states;
    const bool is_row = position >= walk.cached;
    const T* from = is_row ? row_at<T>(call.projected, walk.first_row + position - walk.cached, call.projected_stride)
                           : input_at<T>(states, call.layer, walk.segment.slot, position);
    const int of_gates = states.n_key_heads * states.convolved_size() + head * 2 * states.group;
    const int of_head = head * states.convolved_size();
    return {from + (is_row ? of_head + head * states.value_columns() : of_head),
            from + (is_row ? projected_at(states, of_gates) : of_gates)};
}

// For some steps: queries and keys of a block's key head; values, decays and steps towards the value of its columns.
template <int kChunks> struct Tile {
    static constexpr int kKeys = kChunks * kKeyChunk;
    alignas(16) float keys[kTileSteps][kKeys];
    alignas(16) float queries[kTileSteps][kKeys];
    float values[kTileSteps][kColumns], decays[kTileSteps][kColumns], towards[kTileSteps][kColumns];
};

// A warp makes a key or a query: convolved, activated, scaled to length 1; queries are also scaled as scores are.
template <typename T, int kChunks>
__device__ void make_vectors(const DeltaNetCall& call, const Walk& walk, int head, int first, Tile<kChunks>& tile) {
    const StatesView& states = call.states;
    const int n = walk.n_steps - first < kTileSteps ? walk.n_steps - first : kTileSteps;
    const float* weights = call.convolution + head * states.n_convolved * states.convolved_size();
    for (int task = warp_of_thread(); task < 2 * n; task += kWarps) {
        const bool is_key = task % 2 != 0;
        const int begin = is_key ? states.key_dim : 0;
        float sums[kChunks] = {};
        int position = step_of(walk, call.segments, first + task / 2).position;
        for (int tap = states.n_convolved - 1; tap >= 0 && position >= 0; --tap) {
            const T* x = input_of<T>(call, walk, head, position).convolved + begin;
            const float* w = weights + tap * states.convolved_size() + begin;
#pragma unroll
            for (int chunk = 0; chunk < kChunks; ++chunk)
                if (const int i = chunk * kWarp + lane_of_thread(); i < states.key_dim)
                    sums[chunk] += to_float(x[i]) * w[i];
            position = parent_of(walk, call.segments, position);
        }
        float squares = 0;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            sums[chunk] = activated(call.activation, sums[chunk]);
            squares += sums[chunk] * sums[chunk];
        }
        float scale = 1.0f / sqrtf(warp_sum(squares) + call.length_epsilon);
        if (!is_key) scale /= sqrtf(static_cast<float>(states.key_dim));
        float* to = is_key ? tile.keys[task / 2] : tile.queries[task / 2];
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk)
            to[chunk * kWarp + lane_of_thread()] = sums[chunk] * scale;
    }
}

// A thread makes a column of a step.
template <typename T, int kChunks>
__device__ void make_values(const DeltaNetCall& call, const Walk& walk, int head, int first, Tile<kChunks>& tile) {
    const StatesView& states = call.states;
    const int first_column = static_cast<int>(blockIdx.x) % blocks_of_head(states) * kColumns;
    const int column = static_cast<int>(threadIdx.x) % kColumns, of_group = first_column + column;
    if (of_group >= states.value_columns()) return;
    const int in_input = 2 * states.key_dim + of_group;
    const int in_group = of_group / states.value_dim, value_head = head * states.group + in_group;
    const float* weights = call.convolution + head * states.n_convolved * states.convolved_size() + in_input;
    const float rate = call.decay_rates[value_head], bias = call.decay_bias[value_head];
    for (int at = static_cast<int>(threadIdx.x) / kColumns; at < kTileSteps && first + at < walk.n_steps;
         at += kThreads / kColumns) {
        int position = step_of(walk, call.segments, first + at).position;
        const T* gates = input_of<T>(call, walk, head, position).gates;
        const float x = to_float(gates[states.group + in_group]) + bias;
        tile.decays[at][column] = expf(rate * (x > 20.0f ? x : log1pf(expf(x))));
        tile.towards[at][column] = sigmoid(to_float(gates[in_group]));
        float sum = 0;
        for (int tap = states.n_convolved - 1; tap >= 0 && position >= 0; --tap) {
            sum += to_float(input_of<T>(call, walk, head, position).convolved[in_input]) *
                   weights[tap * states.convolved_size()];
            position = parent_of(walk, call.segments, position);
        }
        tile.values[at][column] = activated(call.activation, sum);
    }
}

// Returns the sum over a column's lanes, on each of them.
__device__ float sum_of_column(float x) {
    for (int step = kKeyLanes / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
}

// A lane's part of a column: numbers 4 l to 4 l + 3 of each chunk.
template <int kChunks> struct Column {
    float4 parts[kChunks];

    __device__ void load(const float* from) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
            parts[c] = *reinterpret_cast<const float4*>(from + c * kKeyChunk);
    }
    __device__ void clear() {
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
            parts[c] = {0, 0, 0, 0};
    }
    __device__ void store(float* to) const {
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
            *reinterpret_cast<float4*>(to + c * kKeyChunk) = parts[c];
    }
    // Returns the product with this lane's part; the other lanes have the rest of the sum.
    __device__ float times(const float* vector) const {
        float4 sums = {0, 0, 0, 0};
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            const float4 of = *reinterpret_cast<const float4*>(vector + c * kKeyChunk);
            sums.x += parts[c].x * of.x;
            sums.y += parts[c].y * of.y;
            sums.z += parts[c].z * of.z;
            sums.w += parts[c].w * of.w;
        }
        return (sums.x + sums.y) + (sums.z + sums.w);
    }
    __device__ void change(const float* key, float decay, float delta) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            const float4 of = *reinterpret_cast<const float4*>(key + c * kKeyChunk);
            parts[c].x = parts[c].x * decay + of.x * delta;
            parts[c].y = parts[c].y * decay + of.y * delta;
            parts[c].z = parts[c].z * decay + of.z * delta;
            parts[c].w = parts[c].w * decay + of.w * delta;
        }
    }
};

// The places of a thread's column in base and front, and in states that a tree saves.
struct ColumnPlaces {
    float* base;
    float* front;
    std::size_t in_layer, of_layer; // numbers

    __device__ float* saved(const DeltaNetCall& call, const Walk& walk, int number) const {
        return call.saved + static_cast<std::size_t>(walk.segment.first_saved + number) * of_layer + in_layer;
    }
};

__device__ ColumnPlaces column_places(const DeltaNetCall& call, const Walk& walk, int head, int column) {
    const StatesView& states = call.states;
    const auto stride = static_cast<std::size_t>(states.key_stride);
    const std::size_t of_layer = static_cast<std::size_t>(states.n_key_heads * states.value_columns()) * stride;
    const std::size_t in_layer = static_cast<std::size_t>(head * states.value_columns() + column) * stride +
                                 static_cast<std::size_t>(4 * (static_cast<int>(threadIdx.x) % kKeyLanes));
    float* base = states.states + static_cast<std::size_t>(walk.segment.slot) * 2 * states.state_numbers() +
                  static_cast<std::size_t>(call.layer) * of_layer + in_layer;
    return {base, base + states.state_numbers(), in_layer, of_layer};
}

// Blocks: x is a key head and columns, y a segment. z 0 computes the front and the pass's rows; z 1 the base if it
// advances by itself.
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads, 2) apply_delta_rule(RowTable table, DeltaNetCall call) {
    begin_kernel();
    __shared__ Tile<kChunks> tile;
    const StatesView& states = call.states;
    if (static_cast<int>(blockIdx.y) >= *call.segments.n_segments) return;
    const bool of_base = blockIdx.z == 1;
    const Walk walk = walk_of_block(table, call.segments, of_base);
    const DeltaSegment& segment = walk.segment;
    if (of_base && walk.n_steps == 0) return;
    const int head = static_cast<int>(blockIdx.x) / blocks_of_head(states);
    const int in_block = static_cast<int>(threadIdx.x) / kKeyLanes;
    const int column = static_cast<int>(blockIdx.x) % blocks_of_head(states) * kColumns + in_block;
    const bool is_there = column < states.value_columns();
    const ColumnPlaces at = column_places(call, walk, head, is_there ? column : 0);
    const bool copies_base = !call.segments.in_loop && segment.copies_base != 0;
    // The state after these positions is kept.
    const int base_kept = of_base || copies_base ? segment.base_to : -1;
    const int front_kept = of_base || call.segments.in_loop ? -1 : segment.front_to;

    Column<kChunks> state;
    walk.from > 0 ? state.load(of_base || copies_base ? at.base : at.front) : state.clear();
    if (copies_base && front_kept == walk.from && is_there) state.store(at.front);
#pragma unroll 1
    for (int first = 0; first < walk.n_steps; first += kTileSteps) {
        __syncthreads(); // the previous tile has been applied
        make_vectors<T>(call, walk, head, first, tile);
        make_values<T>(call, walk, head, first, tile);
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < kTileSteps && first + i < walk.n_steps; ++i) {
            const Step step = step_of(walk, call.segments, first + i);
            if (step.save >= 0 && is_there) state.store(at.saved(call, walk, step.save));
            if (step.load >= 0) state.load(at.saved(call, walk, step.load));
            if (step.load == DeltaTreeStep::kFront) segment.begin > 0 ? state.load(at.front) : state.clear();
            const int of_lane = 4 * (static_cast<int>(threadIdx.x) % kKeyLanes);
            const float* key = tile.keys[i] + of_lane;
            const float decay = tile.decays[i][in_block];
            const float known = sum_of_column(state.times(key)) * decay;
            state.change(key, decay, (tile.values[i][in_block] - known) * tile.towards[i][in_block]);
            if (step.row >= 0) { // the same on all threads
                const float read = sum_of_column(state.times(tile.queries[i] + of_lane));
                if (of_lane == 0 && is_there)
                    call.read[static_cast<std::size_t>(step.row * states.n_key_heads + head) *
                                  static_cast<std::size_t>(states.value_columns()) +
                              static_cast<std::size_t>(column)] = read;
            }
            if (!is_there) continue;
            if (step.position + 1 == base_kept) state.store(at.base);
            if (step.position + 1 == front_kept) state.store(at.front);
        }
    }
}

// Norms and gates the numbers that rows have read. Stores the rows' inputs for later passes: by now, no block of this
// pass reads the old inputs.
template <typename T>
__global__ void __launch_bounds__(kReadWarps* kWarp) finish_delta_rows(RowTable table, DeltaNetCall call) {
    begin_kernel();
    const StatesView& states = call.states;
    const int row = static_cast<int>(blockIdx.y), slot = table.slots[row];
    if (slot < 0) return;
    const T* projected = row_at<T>(call.projected, row, call.projected_stride);
    T* input = input_at<T>(states, call.layer, slot, table.places[row]);
    for (int i = static_cast<int>(blockIdx.x) * kReadWarps * kWarp + static_cast<int>(threadIdx.x);
         i < states.input_numbers(); i += static_cast<int>(gridDim.x) * kReadWarps * kWarp)
        input[i] = projected[projected_at(states, i)];
    const int value_head = static_cast<int>(blockIdx.x) * kReadWarps + warp_of_thread(), dim = states.value_dim;
    if (value_head >= states.n_key_heads * states.group) return; // a whole warp
    const int first = value_head * dim, key_head = value_head / states.group;
    const float* read =
        call.read +
        static_cast<std::size_t>(row) * static_cast<std::size_t>(states.n_key_heads * states.value_columns()) + first;
    const T* gates = projected + (key_head + 1) * states.convolved_size() + first;
    T* to = static_cast<T*>(call.attended) +
            static_cast<std::size_t>(row) * static_cast<std::size_t>(call.attended_stride) + first;
    float squares = 0;
    for (int i = lane_of_thread(); i < dim; i += kWarp)
        squares += read[i] * read[i];
    const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(dim) + call.norm_epsilon);
    for (int i = lane_of_thread(); i < dim; i += kWarp)
        to[i] = from_float<T>(read[i] * scale * call.norm[i] * activated(Activation::silu, to_float(gates[i])));
}

template <typename T> __global__ void gate_attended_rows(GateAttendedCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.y), i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= call.width) return;
    T& attended =
        static_cast<T*>(call.attended)[static_cast<std::size_t>(row) * static_cast<std::size_t>(call.attended_stride) +
                                       static_cast<std::size_t>(i)];
    attended = from_float<T>(to_float(attended) * sigmoid(to_float(row_at<T>(call.gates, row, call.gate_stride)[i])));
}

// A thread copies 16 bytes of states or inputs at a time.
__global__ void copy_slot(StatesView states, int from_slot, int to_slot) {
    begin_kernel();
    const auto first = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
    const auto step = static_cast<std::size_t>(gridDim.x) * kThreads;
    const auto copy = [&](void* all, std::size_t of_slot) { // in units of 16 bytes
        const uint4* from = static_cast<const uint4*>(all) + static_cast<std::size_t>(from_slot) * of_slot;
        uint4* to = static_cast<uint4*>(all) + static_cast<std::size_t>(to_slot) * of_slot;
        for (std::size_t i = first; i < of_slot; i += step)
            to[i] = from[i];
    };
    const std::size_t of_number = states.type == NumberType::float32 ? sizeof(float) : sizeof(std::uint16_t);
    copy(states.states, 2 * states.state_numbers() * sizeof(float) / sizeof(uint4));
    copy(states.inputs, static_cast<std::size_t>(states.n_layers) * static_cast<std::size_t>(states.n_inputs) *
                            static_cast<std::size_t>(states.input_stride) * of_number / sizeof(uint4));
}

// y is a layer. A thread moves one number of every position. Positions only move down, in order.
template <typename T> __global__ void move_rows(MoveInputsCall call) {
    begin_kernel();
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), layer = static_cast<int>(blockIdx.y);
    if (i >= call.states.input_numbers()) return;
    for (int n = 0; n < call.count; ++n)
        input_at<T>(call.states, layer, call.slot, call.to + n)[i] =
            input_at<T>(call.states, layer, call.slot, call.from[n])[i];
}

// Calls f with the chunks of a column as a constant.
template <typename Function> void with_chunks(int key_stride, const Function& f) {
    switch (key_stride / kKeyChunk) {
    case 1:
        return f(std::integral_constant<int, 1>());
    case 2:
        return f(std::integral_constant<int, 2>());
    case 4:
        return f(std::integral_constant<int, 4>());
    case 8:
        return f(std::integral_constant<int, 8>());
    default:
        throw std::invalid_argument("linear attention's keys have more dimensions than there is a kernel for");
    }
}

} // namespace

void delta_net(void* stream, const RowTable& table, const DeltaNetCall& call) {
    const StatesView& states = call.states;
    const dim3 blocks(static_cast<unsigned>(states.n_key_heads * blocks_of_head(states)),
                      static_cast<unsigned>(call.segments.max_segments), call.segments.in_loop ? 1 : 2);
    const dim3 row_blocks(blocks_for(static_cast<std::size_t>(states.n_key_heads * states.group), kReadWarps),
                          static_cast<unsigned>(table.rows));
    with_type(states.type, [&]<typename T>(T*) {
        with_chunks(states.key_stride, [&](auto chunks) {
            launch(stream, {blocks, kThreads}, apply_delta_rule<T, decltype(chunks)::value>, table, call);
        });
        launch(stream, {row_blocks, kReadWarps * kWarp}, finish_delta_rows<T>, table, call);
    });
}

void gate_attended(void* stream, const GateAttendedCall& call) {
    const dim3 blocks(blocks_for(static_cast<std::size_t>(call.width), kThreads), static_cast<unsigned>(call.rows));
    with_type(call.type, [&]<typename T>(T*) { launch(stream, {blocks, kThreads}, gate_attended_rows<T>, call); });
}

void copy_states(void* stream, const StatesView& states, int from_slot, int to_slot) {
    launch(stream, {blocks_for(2 * states.state_numbers() * sizeof(float) / sizeof(uint4), kThreads), kThreads},
           copy_slot, states, from_slot, to_slot);
}

void move_inputs(void* stream, const MoveInputsCall& call) {
    const dim3 blocks(blocks_for(static_cast<std::size_t>(call.states.input_numbers()), kThreads),
                      static_cast<unsigned>(call.states.n_layers));
    with_type(call.states.type, [&]<typename T>(T*) { launch(stream, {blocks, kThreads}, move_rows<T>, call); });
}

} // namespace entrodraft::model::gpu
