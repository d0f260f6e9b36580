// y = x w^T + bias for few rows: what a decode pass spends its time on, bound by reading w once.
//
// 16-bit weights: a block makes 16, 32 or 64 outputs of all rows; its warps share out k in chunks of 32. A quad of
// lanes reads 64 bytes of a weight row that lie together, 16 a lane, and multiplies them as two steps of the tensor
// core: which k is where inside a step does not matter as long as weights and activations agree, so neither is shuffled
// nor staged. Warps' sums are added in order, so that a row's bits hang neither on the rows beside it nor on how many
// groups of rows a launch has: 1, 2, 4 or 8. int8 and float8 weights: the same in chunks of 64, a lane's 16 bytes
// widened to the activations' type on the way, which holds each of them exactly. int4: in chunks of 128, whose two
// groups are summed apart and scaled in float32. float32: a warp an output, lanes along k. Of experts a block has the
// outputs of one, and goes through its rows a launch's groups at a time: their bits are those of the expert's matrix by
// itself.
#include "model/gpu/activation.cuh"
#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

#include <stdexcept>
#include <type_traits>

namespace entrodraft::model::gpu {

namespace {

constexpr int kTile = 16;     // outputs of a tensor-core step
constexpr int kRowGroup = 8;  // rows of a tensor-core step
constexpr int kMaxGroups = 8; // row groups of a launch: 64 rows for one read of the weights
constexpr int kWarps = 8;     // of a block

struct Part {
    Linear call;
    int first_row; // of this launch
};

// Where a row of x lies: in its place, or in a list.
struct InPlace {
    __device__ int operator()(int row) const { return row; }
};
struct Listed {
    const std::int32_t* rows; // none: in its place
    __device__ int operator()(int row) const { return rows == nullptr ? row : rows[row]; }
};

__device__ void store(const Linear& call, int row, int column, float y) {
    const std::size_t at =
        static_cast<std::size_t>(row) * static_cast<std::size_t>(call.y_stride) + static_cast<std::size_t>(column);
    switch (call.y_type) {
    case NumberType::float32:
        static_cast<float*>(call.y)[at] = call.add ? static_cast<float*>(call.y)[at] + y : y;
        return;
    case NumberType::bfloat16:
        static_cast<__nv_bfloat16*>(call.y)[at] = from_float<__nv_bfloat16>(y);
        return;
    case NumberType::float16:
        static_cast<__half*>(call.y)[at] = from_float<__half>(y);
        return;
    }
}

// From the sum of output n and, of a gate, that of its up.
__device__ void finish(const Linear& call, int row, int n, float sum, float up) {
    const auto scaled = [&](float x, int of) {
        if (call.scales != nullptr) x *= call.scales[of];
        return call.bias == nullptr ? x : x + call.bias[of];
    };
    const float y = scaled(sum, n);
    if (call.epilogue != Epilogue::gate)
        return store(call, row, n, call.epilogue == Epilogue::none ? y : activated(call.activation, y));
    store(call, row, n / (2 * kGateGroup) * kGateGroup + n % kGateGroup,
          gated(call.activation, call.gate_limit, call.gate_slope, y, scaled(up, n + kGateGroup)));
}

// Adds up what the warps of a block have of its outputs, in order, and stores it.
template <int kTiles, int kGroups>
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
        // A gate and its up are 8 outputs apart: numbers c and c + 2 of a lane.
        const int n_numbers = call.epilogue == Epilogue::gate ? 2 : 4;
        for (int at = static_cast<int>(threadIdx.x); at < kGroups * n_numbers * kWarp; at += kWarps * kWarp) {
            const int holder = at % kWarp, c = at / kWarp % n_numbers, j = at / kWarp / n_numbers;
            const int n = first_output + i * kTile + holder / 4 + 8 * (c / 2);
            const int row = part.first_row + j * kRowGroup + 2 * (holder % 4) + c % 2;
            if (row >= call.rows || n >= call.n) continue;
            const auto sum_of = [&](int number) {
                float sum = 0;
                for (int of = 0; of < kWarps; ++of)
                    sum += shared[of * kOfWarp + (j * 4 + number) * kWarp + holder];
                return sum;
            };
            finish(call, row, n, sum_of(c), call.epilogue == Epilogue::gate ? sum_of(c + 2) : 0.0f);
        }
    }
}

struct Float8 {
    unsigned char bits;
};
struct Int4 {}; // eight to a word: int4_word(), int4_bit()
template <typename W> constexpr bool kIsInt4 = std::is_same_v<W, Int4>;

// How a quad's 64 bytes of a row hold its weights: of each lane a run of inputs, of int4 two.
template <typename W> struct Chunk {
    static constexpr int kOfLane = 16 / static_cast<int>(sizeof(W)); // weights that a lane reads at once
    static constexpr int kInputs = 4 * kOfLane;
    __device__ static int input(int t, int read) { return kOfLane * t + 8 * read; } // first of 8 that a lane reads
    __device__ static int count(const Linear& call) { return call.stride / kInputs; }
};
template <> struct Chunk<Int4> {
    static constexpr int kOfLane = 32, kInputs = kInt4Chunk;
    __device__ static int input(int t, int read) { return 64 * (read / 2) + 16 * t + 8 * (read % 2); }
    __device__ static int count(const Linear& call) { return int4_chunks(call.stride); }
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

// Of a word of int4 the numbers whose codes begin at bits `shift` and 16 + shift: 128 + code in bfloat16, and 1024 +
// code in float16, have the code in their last bits.
template <typename T> __device__ unsigned int4_pair(unsigned word, int shift) {
    constexpr bool kIsBrief = std::is_same_v<T, __nv_bfloat16>;
    unsigned pair = (word >> shift & 0x000f000fu) | (kIsBrief ? 0x43004300u : 0x64006400u);
#if defined(__CUDA_ARCH__)
    if constexpr (kIsBrief) // times 1, less 136
        asm("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(pair) : "r"(0x3f803f80u), "r"(0xc308c308u));
    else // less 1032
        asm("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(pair) : "r"(0x3c003c00u), "r"(0xe408e408u));
#else
    T numbers[2];
    memcpy(numbers, &pair, sizeof pair);
    for (T& number : numbers)
        number = from_float<T>(to_float(number) - (kIsBrief ? 136.0f : 1032.0f));
    memcpy(&pair, numbers, sizeof pair);
#endif
    return pair;
}

// The four weights of a lane in a tensor-core step, from the 16 bytes that it has read.
template <typename T, typename W> __device__ void weights_of_step(const uint4& read, int step, unsigned (&pairs)[2]) {
    const unsigned words[4] = {read.x, read.y, read.z, read.w};
    if constexpr (kIsInt4<W>) {
        for (int i = 0; i < 2; ++i)
            pairs[i] = int4_pair<T>(words[step / 2], 4 * (step % 2 * 2 + i));
    } else if constexpr (sizeof(W) == 1) {
        constexpr unsigned kLift = std::is_same_v<W, signed char> ? 0x80808080u : 0u;
        widen<T, W>(words[step] ^ kLift, pairs);
    } else {
        pairs[0] = words[2 * step];
        pairs[1] = words[2 * step + 1];
    }
}

// Chunks whose loads are under way together: as many as registers allow, of two blocks to a multiprocessor but for 64
// rows.
template <int kTiles, int kGroups, int kInputs>
constexpr int kChunksAhead = kInputs == 4            ? (kTiles* kGroups > 2 ? 1 : 4 - kTiles * kGroups)
                             : kGroups == kMaxGroups ? 1
                             : kGroups == 4          ? 2 / kInputs
                             : kTiles* kGroups == 4  ? (kInputs == 1 ? 3 : 2)
                                                     : 4 / kInputs;

// The scales of a lane's two outputs of a tile in a chunk.
struct ScalePairs {
    unsigned of_half[2]; // of output g, g + 8: of the chunk's halves
    __device__ float scale(int output, int half) const {
        return __uint_as_float(half == 0 ? of_half[output] << 16 : of_half[output] & 0xffff0000u);
    }
};

// Weights of type W, T itself, int8, Float8 or Int4. Rows that are not there are read as the first and not stored; so
// are outputs. `wait`: before what other kernels write is read.
template <typename T, typename W, int kTiles, int kGroups, typename RowOf, typename Wait>
__device__ void multiply_block(const Part& part, const RowOf& row_of, const Wait& wait) {
    constexpr int kOfLane = Chunk<W>::kOfLane, kHalves = kIsInt4<W> ? 2 : 1;
    constexpr int kSteps = kOfLane / 4 / kHalves; // of a half
    constexpr int kInputs = kOfLane / 8;          // reads of 8 activations
    constexpr int kAhead = kChunksAhead<kTiles, kGroups, kInputs>;
    constexpr std::size_t kChunkBytes = 64;
    const Linear& call = part.call;
    const int lane = lane_of_thread(), warp = warp_of_thread(), g = lane / 4, t = lane % 4;
    const int first_output = static_cast<int>(blockIdx.x) * kTile * kTiles, n_chunks = Chunk<W>::count(call);
    const auto stride = static_cast<std::size_t>(call.stride);
    const std::byte* w[kTiles][2];
    const std::uint16_t* scales[kTiles][2];
    const T* x[kGroups];
    for (int i = 0; i < kTiles; ++i)
        for (int half = 0; half < 2; ++half) {
            const int n = first_output + i * kTile + half * 8 + g;
            const auto row = static_cast<std::size_t>(n < call.n ? n : 0) * static_cast<std::size_t>(n_chunks);
            w[i][half] = static_cast<const std::byte*>(call.w) + row * kChunkBytes + 16 * t;
            if constexpr (kIsInt4<W>) scales[i][half] = call.group_scales + 2 * row;
        }
    for (int i = 0; i < kGroups; ++i) {
        const int row = part.first_row + i * kRowGroup + g;
        x[i] = static_cast<const T*>(call.x) +
               static_cast<std::size_t>(row_of(row < call.rows ? row : part.first_row)) * stride;
    }

    uint4 weights[kAhead][kTiles][2];
    ScalePairs scale_pairs[kAhead][kTiles]; // of int4
    const auto load_weights = [&](int first) {
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
            const int chunk = first + a * kWarps;
            if (chunk >= n_chunks) continue; // the same on all lanes
#pragma unroll
            for (int i = 0; i < kTiles; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    weights[a][i][half] = load_streaming(w[i][half] + static_cast<std::size_t>(chunk) * kChunkBytes);
                    if constexpr (kIsInt4<W>)
                        scale_pairs[a][i].of_half[half] =
                            *reinterpret_cast<const unsigned*>(scales[i][half] + 2 * chunk);
                }
        }
    };
    load_weights(warp); // no kernel writes them
    wait();

    float sums[kTiles][kGroups][4] = {};
#pragma unroll 1
    for (int first = warp; first < n_chunks; first += kWarps * kAhead) {
        if (first > warp) load_weights(first);
        uint4 inputs[kAhead][kGroups][kInputs];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
            const int chunk = first + a * kWarps;
            if (chunk >= n_chunks) continue;
#pragma unroll
            for (int read = 0; read < kInputs; ++read) {
                const int k = chunk * Chunk<W>::kInputs + Chunk<W>::input(t, read);
                const bool is_there = !kIsInt4<W> || read < 2 || k < call.stride; // a row of int4 may end with half
#pragma unroll
                for (int i = 0; i < kGroups; ++i)
                    inputs[a][i][read] = is_there ? *reinterpret_cast<const uint4*>(x[i] + k) : uint4{0, 0, 0, 0};
            }
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
            if (first + a * kWarps >= n_chunks) continue;
#pragma unroll
            for (int i = 0; i < kTiles; ++i)
#pragma unroll
                for (int half = 0; half < kHalves; ++half) {
                    float of_group[kGroups][4] = {}; // of int4
#pragma unroll
                    for (int s = 0; s < kSteps; ++s) {
                        const int step = half * kSteps + s;
                        unsigned low[2], high[2];
                        weights_of_step<T, W>(weights[a][i][0], step, low);
                        weights_of_step<T, W>(weights[a][i][1], step, high);
                        const unsigned of_w[4] = {low[0], high[0], low[1], high[1]};
#pragma unroll
                        for (int j = 0; j < kGroups; ++j) {
                            const uint4 eight = inputs[a][j][step / 2];
                            const unsigned of_x[2] = {step % 2 == 0 ? eight.x : eight.z,
                                                      step % 2 == 0 ? eight.y : eight.w};
                            multiply_16x8x16<T>(kIsInt4<W> ? of_group[j] : sums[i][j], of_w, of_x);
                        }
                    }
                    if constexpr (kIsInt4<W>)
#pragma unroll
                        for (int j = 0; j < kGroups; ++j)
#pragma unroll
                            for (int c = 0; c < 4; ++c)
                                sums[i][j][c] =
                                    fmaf(scale_pairs[a][i].scale(c / 2, half), of_group[j][c], sums[i][j][c]);
                }
        }
    }
    add_warps<kTiles, kGroups>(part, sums);
}

template <typename T, typename W, int kTiles, int kGroups>
__global__ void __launch_bounds__(kWarps* kWarp, kGroups < kMaxGroups ? 2 : 1) multiply_tensor_cores(Part part) {
    start_next_kernel();
    multiply_block<T, W, kTiles, kGroups>(part, InPlace{}, [] { wait_for_inputs(); });
}

// Of an expert, whose weights are of type W, the product of the rows that go through it.
template <typename W> __device__ Linear of_expert(const ExpertLinear& call, int expert) {
    Linear mine = call;
    const std::size_t first = static_cast<std::size_t>(expert) * static_cast<std::size_t>(call.n);
    if constexpr (kIsInt4<W>) {
        const std::size_t chunks = first * static_cast<std::size_t>(int4_chunks(call.stride));
        mine.w = static_cast<const std::byte*>(call.w) + chunks * kInt4ChunkBytes;
        mine.group_scales += 2 * chunks;
    } else {
        mine.w = static_cast<const W*>(call.w) + first * static_cast<std::size_t>(call.stride);
    }
    if (call.scales != nullptr) mine.scales += first;
    if (call.bias != nullptr) mine.bias += first;
    mine.rows = call.begin[expert + 1];
    return mine;
}

template <typename T, typename W, int kTiles, int kGroups>
__global__ void __launch_bounds__(kWarps* kWarp, kGroups < kMaxGroups ? 2 : 1) multiply_experts(ExpertLinear call) {
    begin_kernel();
    const int expert = static_cast<int>(blockIdx.y);
    const Linear mine = of_expert<W>(call, expert);
    for (int first = call.begin[expert]; first < mine.rows; first += kRowGroup * kGroups) {
        multiply_block<T, W, kTiles, kGroups>(Part{mine, first}, Listed{call.from_rows}, [] {});
        __syncthreads(); // what the warps have added up has been read
    }
}

// A block for so many outputs.
template <int kTiles, int kGroups> Grid grid_of(int outputs, int experts) {
    constexpr std::size_t kShared = sizeof(float) * kWarps * kGroups * 4 * kWarp;
    static_assert(kShared <= 48 * 1024);
    const unsigned blocks = blocks_for(static_cast<std::size_t>(outputs), kTile * kTiles);
    return {dim3(blocks, static_cast<unsigned>(experts)), kWarps * kWarp, kShared};
}

// Calls f with a number of the weights' type, T itself or one with scales.
template <typename T, typename Function> void with_weights(const Linear& call, const Function& f) {
    if (call.group_scales != nullptr) return f(Int4{});
    if (call.scales == nullptr) return f(T{});
    if (call.is_float8) return f(Float8{});
    f(static_cast<signed char>(0));
}

// Registers hold the sums of fewer rows where groups of int4 have their own.
template <typename W> constexpr int kGroupsAtMost = kIsInt4<W> ? 2 : kMaxGroups;

// As many groups as hold the rows of an expert, were they shared out evenly.
template <typename T> void multiply_expert_tiles(void* stream, const ExpertLinear& call) {
    const int of_each = blocks_for(static_cast<std::size_t>(call.rows), static_cast<std::size_t>(call.n_experts));
    with_weights<T>(call, [&]<typename W>(W) {
        const auto multiply = [&]<int kTiles, int kGroups>() {
            launch(stream, grid_of<kTiles, kGroups>(call.n, call.n_experts), multiply_experts<T, W, kTiles, kGroups>,
                   call);
        };
        if constexpr (kIsInt4<W>) // more rows at once would be spilled
            multiply.template operator()<1, 1>();
        else if (of_each <= kRowGroup)
            multiply.template operator()<1, 1>();
        else if (of_each <= 4 * kRowGroup)
            multiply.template operator()<1, 4>();
        else
            multiply.template operator()<2, kMaxGroups>();
    });
}

// How k is shared out, and with it the order of a sum, follows from the matrix's shape alone, not from the rows.
template <typename T, typename W> void multiply_tiles(void* stream, const Linear& call) {
    constexpr int kManyOutputs = 8192; // then blocks of 32 outputs still fill every multiprocessor several times
    constexpr int kGroupsAtOnce = kGroupsAtMost<W>;
    const bool has_many = call.n >= kManyOutputs;
    for (int first = 0; first < call.rows; first += kRowGroup * kGroupsAtOnce) {
        const Part part = {call, first};
        const int left = call.rows - first;
        const auto multiply = [&]<int kFewTiles, int kManyTiles, int kGroups>() {
            has_many ? launch(stream, grid_of<kManyTiles, kGroups>(call.n, 1),
                              multiply_tensor_cores<T, W, kManyTiles, kGroups>, part)
                     : launch(stream, grid_of<kFewTiles, kGroups>(call.n, 1),
                              multiply_tensor_cores<T, W, kFewTiles, kGroups>, part);
        };
        if (left <= kRowGroup)
            multiply.template operator()<1, 2, 1>();
        else if (left <= 2 * kRowGroup || kGroupsAtOnce == 2)
            multiply.template operator()<1, 2, 2>();
        else if constexpr (kGroupsAtOnce > 2) {
            if (left <= 4 * kRowGroup)
                multiply.template operator()<1, 2, 4>();
            else // the rows come from the second-level cache: for twice the outputs, where registers hold them
                multiply.template operator()<2, std::is_same_v<T, W> ? 4 : 2, kMaxGroups>();
        }
    }
}

constexpr int kFloatWarps = 4;
constexpr int kFloatRows = 8;

// The sums of output n on all lanes of a warp; lane l adds k = 4 l, 4 l + 128, ... in order.
template <typename RowOf>
__device__ void multiply_row(const Part& part, const RowOf& row_of, int n, float (&sums)[kFloatRows]) {
    const Linear& call = part.call;
    const auto stride = static_cast<std::size_t>(call.stride);
    const float* w = static_cast<const float*>(call.w) + static_cast<std::size_t>(n) * stride;
    for (int k = 4 * lane_of_thread(); k < call.stride; k += 4 * kWarp) {
        const float4 of_w = *reinterpret_cast<const float4*>(w + k);
        for (int i = 0; i < kFloatRows && part.first_row + i < call.rows; ++i) {
            const float* x =
                static_cast<const float*>(call.x) + static_cast<std::size_t>(row_of(part.first_row + i)) * stride;
            const float4 of_x = *reinterpret_cast<const float4*>(x + k);
            sums[i] += of_w.x * of_x.x + of_w.y * of_x.y + of_w.z * of_x.z + of_w.w * of_x.w;
        }
    }
    for (float& sum : sums)
        sum = warp_sum(sum);
}

// One warp an output, or a gate and its up.
template <typename RowOf> __device__ void multiply_float_rows(const Part& part, const RowOf& row_of) {
    const Linear& call = part.call;
    const bool is_gate = call.epilogue == Epilogue::gate;
    const int i_output = static_cast<int>(blockIdx.x) * kFloatWarps + warp_of_thread();
    const int n = is_gate ? gate_row(i_output) : i_output;
    if (n >= call.n) return; // a whole warp
    float sums[kFloatRows] = {}, ups[kFloatRows] = {};
    multiply_row(part, row_of, n, sums);
    if (is_gate) multiply_row(part, row_of, n + kGateGroup, ups);
    for (int i = 0; i < kFloatRows && part.first_row + i < call.rows; ++i)
        if (lane_of_thread() == 0) finish(call, part.first_row + i, n, sums[i], ups[i]);
}

__global__ void multiply_float(Part part) {
    begin_kernel();
    multiply_float_rows(part, InPlace{});
}

__global__ void multiply_float_experts(ExpertLinear call) {
    begin_kernel();
    const int expert = static_cast<int>(blockIdx.y);
    const Linear mine = of_expert<float>(call, expert);
    for (int first = call.begin[expert]; first < mine.rows; first += kFloatRows)
        multiply_float_rows(Part{mine, first}, Listed{call.from_rows});
}

} // namespace

std::size_t bytes_of(NumberType type) {
    return type == NumberType::float32 ? sizeof(float) : sizeof(std::uint16_t);
}

namespace {

void check_types(const Linear& call) {
    if ((call.scales != nullptr || call.group_scales != nullptr) && call.type == NumberType::float32)
        throw std::invalid_argument("weights of 8 and 4 bits take activations of 16 bits");
}

} // namespace

void linear(void* stream, const Linear& call) {
    check_types(call);
    switch (call.type) {
    case NumberType::float32:
        for (int first = 0; first < call.rows; first += kFloatRows)
            launch(stream, {blocks_for(static_cast<std::size_t>(call.n), kFloatWarps), kFloatWarps * kWarp},
                   multiply_float, Part{call, first});
        return;
    case NumberType::bfloat16:
        return with_weights<__nv_bfloat16>(call,
                                           [&]<typename W>(W) { multiply_tiles<__nv_bfloat16, W>(stream, call); });
    case NumberType::float16:
        return with_weights<__half>(call, [&]<typename W>(W) { multiply_tiles<__half, W>(stream, call); });
    }
}

void expert_linear(void* stream, const ExpertLinear& call) {
    check_types(call);
    switch (call.type) {
    case NumberType::float32:
        launch(stream,
               {dim3(blocks_for(static_cast<std::size_t>(call.n), kFloatWarps), static_cast<unsigned>(call.n_experts)),
                kFloatWarps * kWarp},
               multiply_float_experts, call);
        return;
    case NumberType::bfloat16:
        return multiply_expert_tiles<__nv_bfloat16>(stream, call);
    case NumberType::float16:
        return multiply_expert_tiles<__half>(stream, call);
    }
}

} // namespace entrodraft::model::gpu
