// y = x w^T + bias for few rows. A decode pass spends most of its time here. The limit is the time to read w once.
//
// A block makes 16, 32 or 64 outputs of all rows; its warps share k in chunks of 64 bytes. A quad of lanes reads a
// chunk of a weight row, 16 bytes per lane, and multiplies it in steps of the tensor core, two for each 32 inputs. The
// order of k inside a step does not matter if it is the same for weights and activations, so neither is shuffled or
// staged. The warps' sums are added in order. So a row's bits depend neither on the rows next to it nor on the number
// of row groups in a launch: 1, 2, 4 or 8.
//
// Codes of 8 and 4 bits are widened to the activations' type on the way. This type represents each code exactly, but
// values in a table are rounded to it. Inputs with a common scale are summed separately, and the sum is scaled in
// float32. The offset subtracts a multiple of the activations' sum. The tensor core makes this sum, with ones as
// weights. So zeros need not be whole numbers, and one step serves all outputs of a warp. With experts, a block has
// outputs of one expert, and takes as many of the expert's rows at a time as a launch's groups have. Their bits are
// those of the expert's matrix alone.
//
// Included by linear.cu and linear_groups.cu.
#pragma once

#include "model/gpu/activation.cuh"
#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <type_traits>

namespace entrodraft::model::gpu {

inline constexpr int kTile = 16;     // outputs of a tensor-core step
inline constexpr int kRowGroup = 8;  // rows of a tensor-core step
inline constexpr int kMaxGroups = 8; // row groups of a launch: 64 rows for one read of the weights
inline constexpr int kWarps = 8;     // per block

struct Part {
    Linear call;
    int first_row; // the first row of this launch
};

// Returns where a row of x lies: in its place, or at a place from a list.
struct InPlace {
    __device__ int operator()(int row) const { return row; }
};
struct Listed {
    const std::int32_t* rows; // null: in its place
    __device__ int operator()(int row) const { return rows == nullptr ? row : rows[row]; }
};

__device__ inline void store_product(const Linear& call, int row, int column, float y) {
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

// Finishes and stores an output from the sum of row n of w and, for a gate, the sum of its up.
__device__ inline void finish_product(const Linear& call, int row, int n, float sum, float up) {
    const auto scaled = [&](float x, int of) {
        if (call.scales != nullptr) x *= call.scales[of];
        return call.bias == nullptr ? x : x + call.bias[of];
    };
    const float y = scaled(sum, n);
    if (call.epilogue != Epilogue::gate)
        return store_product(call, row, n, call.epilogue == Epilogue::none ? y : activated(call.activation, y));
    store_product(call, row, n / (2 * kGateGroup) * kGateGroup + n % kGateGroup,
                  gated(call.activation, call.gate_limit, call.gate_slope, y, scaled(up, n + kGateGroup)));
}

// Bytes of shared memory for add_warps().
template <int kGroups> inline constexpr std::size_t kSumBytes = sizeof(float) * kWarps* kGroups * 4 * kWarp;

// Adds up the sums of a block's warps in order, and stores the outputs.
template <int kTiles, int kGroups>
__device__ void add_warps(const Part& part, const float (&sums)[kTiles][kGroups][4]) {
    const Linear& call = part.call;
    const int lane = lane_of_thread(), warp = warp_of_thread();
    const int first_output = static_cast<int>(blockIdx.x) * kTile * kTiles;
    // One tile at a time: [warp][group][4][lane].
    constexpr int kOfWarp = kGroups * 4 * kWarp;
    auto* shared = reinterpret_cast<float*>(dynamic_shared());
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
        if (i > 0) __syncthreads(); // the previous tile has been read
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
            finish_product(call, row, n, sum_of(c), call.epilogue == Epilogue::gate ? sum_of(c + 2) : 0.0f);
        }
    }
}

// Weights of kCodeForms[i]; numbers of the activations' type T are of type T.
template <int i> struct Coded {};
template <typename W> inline constexpr CodeForm kFormOf = {};
template <int i> inline constexpr CodeForm kFormOf<Coded<i>> = kCodeForms[i];

// The way a chunk is summed up: in spans of inputs that share a scale. A span is some runs of 32 inputs or half a run.
// Without groups, the chunk is one span.
template <typename W> struct Chunk {
    static constexpr CodeForm kForm = kFormOf<W>;
    static constexpr bool kIsCoded = kForm.code != Code::none;
    static constexpr int kRuns = kIsCoded ? chunk_inputs(kForm) / kRunInputs : 1;
    static constexpr int kInputs = kRuns * kRunInputs;
    static constexpr bool kHasGroups = kForm.group > 0, kIsHalved = kForm.group == kRunInputs / 2;
    static constexpr int kSpans = kHasGroups ? scales_of_chunk(kForm) : 1;
    static constexpr int kRunsOfSpan = kIsHalved ? 1 : kRuns / kSpans;
    static constexpr int kScaleWords = kHasGroups ? kSpans * scale_bytes(kForm) / 4 : 1;
    __device__ static int count(const Linear& call) { return (call.stride + kInputs - 1) / kInputs; }
};

// Number i of four int8, each stored as w + 128: makes 2^23 + w + 128 as float32, then subtracts the first two.
__device__ inline float number_of_int8(unsigned four, int i) {
    return __uint_as_float(__byte_perm(four, 0x4b000000u, 0x7440u + static_cast<unsigned>(i))) - 8388736.0f;
}
// Number i of four float8: moves exponent and fraction to their places in float32, then corrects the exponent bias.
__device__ inline float number_of_float8(unsigned four, int i) {
    const unsigned bits = four >> (8 * i);
    return __uint_as_float((bits & 0x80u) << 24 | (bits & 0x7fu) << 20) * 0x1p120f;
}

// Four numbers of 8 bits as two pairs of T.
template <typename T, Code code> __device__ void widen(unsigned four, unsigned (&pairs)[2]) {
    T values[4];
    if constexpr (code == Code::int8) four ^= 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        values[i] = from_float<T>(code == Code::int8 ? number_of_int8(four, i) : number_of_float8(four, i));
    memcpy(pairs, values, sizeof pairs);
}

// Returns the int4 numbers of a word whose codes begin at bits `shift` and 16 + shift. Their codes become the last bits
// of 128 + code in bfloat16 or of 1024 + code in float16.
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

// Looks up in `pairs` the values of the same two codes of a word of table indices.
__device__ inline unsigned table_pair(const unsigned* pairs, unsigned word, int shift) {
    return pairs[(word >> shift & 0x0fu) | (word >> (shift + 12) & 0xf0u)];
}
// Returns [256], of a block: the values of two table indices, the first in the lower half. Has a barrier inside.
template <typename T> __device__ const unsigned* fill_pairs(const float* values, unsigned char* shared) {
    auto* pairs = reinterpret_cast<unsigned*>(shared);
    static_assert(kWarps * kWarp == 256);
    const unsigned place = threadIdx.x;
    const T pair[2] = {from_float<T>(values[place % 16 ^ 8u]), from_float<T>(values[place / 16 ^ 8u])};
    memcpy(&pairs[place], pair, sizeof pair);
    __syncthreads();
    return pairs;
}
inline constexpr std::size_t kPairBytes = 256 * sizeof(unsigned);

// Returns the four weights of a lane in a tensor-core step, from the 16 bytes that it has read.
template <typename T, typename W>
__device__ void weights_of_step(const uint4& read, int step, const unsigned* table, unsigned (&pairs)[2]) {
    constexpr Code kCode = kFormOf<W>.code;
    const unsigned words[4] = {read.x, read.y, read.z, read.w};
    if constexpr (has_4_bits(kFormOf<W>)) {
        for (int i = 0; i < 2; ++i) {
            const unsigned word = words[step / 2];
            const int shift = 4 * (step % 2 * 2 + i);
            pairs[i] = kCode == Code::table ? table_pair(table, word, shift) : int4_pair<T>(word, shift);
        }
    } else if constexpr (kCode != Code::none) {
        widen<T, kCode>(words[step], pairs);
    } else {
        pairs[0] = words[2 * step];
        pairs[1] = words[2 * step + 1];
    }
}

// Number of chunks whose loads are under way together: as registers allow for two blocks per multiprocessor, one block
// for 64 rows.
template <typename W, int kTiles, int kGroups> constexpr int chunks_ahead() {
    constexpr int kRuns = Chunk<W>::kRuns, kProduct = kTiles * kGroups;
    if (kRuns == 1) return kGroups == kMaxGroups ? 1 : kGroups == 4 ? 2 : kProduct == 4 ? 3 : 4;
    if (!Chunk<W>::kHasGroups) return kGroups >= 4 ? 1 : 2;
    constexpr int kRegisters = 87; // registers that loads may take
    constexpr int kOfChunk = kTiles * (8 + 2 * Chunk<W>::kScaleWords) + 4 * kRuns * kGroups;
    const int most = kRuns == 4                                   ? (kProduct > 2 ? 1 : 4 - kProduct)
                     : kProduct == 4 || Chunk<W>::kScaleWords > 4 ? 1
                                                                  : 2;
    return std::max(1, std::min(most, kRegisters / kOfChunk));
}
template <typename W, int kTiles, int kGroups> inline constexpr int kChunksAhead = chunks_ahead<W, kTiles, kGroups>();

// The scales of a chunk, and their offsets, for one output.
template <typename W> struct ScalesOfChunk {
    using Of = Chunk<W>;
    alignas(Of::kScaleWords < 4 ? 4 * Of::kScaleWords : 16) unsigned words[Of::kScaleWords];

    __device__ void load(const std::byte* from) {
        if constexpr (Of::kScaleWords == 1) {
            words[0] = *reinterpret_cast<const unsigned*>(from);
        } else if constexpr (Of::kScaleWords == 2) {
            const uint2 two = *reinterpret_cast<const uint2*>(from);
            words[0] = two.x, words[1] = two.y;
        } else {
#pragma unroll
            for (int i = 0; i < Of::kScaleWords; i += 4) {
                const uint4 four = *reinterpret_cast<const uint4*>(from + 4 * i);
                words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
            }
        }
    }
    __device__ float scale(int span) const {
        if constexpr (Of::kForm.wide_scales) return __uint_as_float(words[Of::kForm.has_offsets ? 2 * span : span]);
        return __uint_as_float(span % 2 == 0 ? words[span / 2] << 16 : words[span / 2] & 0xffff0000u);
    }
    __device__ float offset(int span) const {
        return __uint_as_float(words[2 * span + 1]);
    }
};

// Missing rows are read as the part's first row and not stored; outputs likewise. `wait` is called before data that
// other kernels write is read.
template <typename T, typename W, int kTiles, int kGroups, typename RowOf, typename Wait>
__device__ void multiply_block(const Part& part, const RowOf& row_of, const Wait& wait) {
    using Of = Chunk<W>;
    constexpr int kRuns = Of::kRuns, kAhead = kChunksAhead<W, kTiles, kGroups>;
    constexpr bool kHasOffsets = Of::kForm.has_offsets;
    const Linear& call = part.call;
    const int lane = lane_of_thread(), warp = warp_of_thread(), g = lane / 4, t = lane % 4;
    const int first_output = static_cast<int>(blockIdx.x) * kTile * kTiles, n_chunks = Of::count(call);
    const auto stride = static_cast<std::size_t>(call.stride);
    const std::byte* w[kTiles][2];
    const std::byte* scales[kTiles][2];
    const T* x[kGroups];
    for (int i = 0; i < kTiles; ++i)
        for (int half = 0; half < 2; ++half) {
            const int n = first_output + i * kTile + half * 8 + g;
            const auto row = static_cast<std::size_t>(n < call.n ? n : 0) * static_cast<std::size_t>(n_chunks);
            w[i][half] = static_cast<const std::byte*>(call.w) + row * kChunkBytes + 16 * t;
            if constexpr (Of::kHasGroups)
                scales[i][half] = static_cast<const std::byte*>(call.group_scales) + row * (4 * Of::kScaleWords);
        }
    for (int i = 0; i < kGroups; ++i) {
        const int row = part.first_row + i * kRowGroup + g;
        x[i] = static_cast<const T*>(call.x) +
               static_cast<std::size_t>(row_of(row < call.rows ? row : part.first_row)) * stride;
    }

    uint4 weights[kAhead][kTiles][2];
    ScalesOfChunk<W> scales_there[kAhead][kTiles][2];
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
                    if constexpr (Of::kHasGroups)
                        scales_there[a][i][half].load(scales[i][half] +
                                                      static_cast<std::size_t>(chunk) * (4 * Of::kScaleWords));
                }
        }
    };
    load_weights(warp); // no kernel writes them
    const unsigned* table = nullptr;
    if constexpr (Of::kForm.code == Code::table)
        table = fill_pairs<T>(call.values, dynamic_shared() + kSumBytes<kGroups>);
    wait();

    float sums[kTiles][kGroups][4] = {};
#pragma unroll 1
    for (int first = warp; first < n_chunks; first += kWarps * kAhead) {
        if (first > warp) load_weights(first);
        uint4 inputs[kAhead][kGroups][kRuns];
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
            const int chunk = first + a * kWarps;
            if (chunk >= n_chunks) continue;
#pragma unroll
            for (int run = 0; run < kRuns; ++run) {
                const int k = chunk * Of::kInputs + kRunInputs * run + 8 * t;
                const bool is_there = run < 2 || k < call.stride; // a row of 4-bit codes may end with half a chunk
#pragma unroll
                for (int i = 0; i < kGroups; ++i)
                    inputs[a][i][run] = is_there ? *reinterpret_cast<const uint4*>(x[i] + k) : uint4{0, 0, 0, 0};
            }
        }
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
            if (first + a * kWarps >= n_chunks) continue;
#pragma unroll
            for (int span = 0; span < Of::kSpans; ++span) {
                // Calls f(step, row group, its activations) for each step of the span.
                const auto for_each_input = [&](int step, const auto& f) {
#pragma unroll
                    for (int j = 0; j < kGroups; ++j) {
                        uint4 eight = inputs[a][j][step / 2];
                        if (Of::kIsHalved && t / 2 != span % 2) eight = uint4{0, 0, 0, 0};
                        const unsigned of_x[2] = {step % 2 == 0 ? eight.x : eight.z, step % 2 == 0 ? eight.y : eight.w};
                        f(j, of_x);
                    }
                };
                constexpr int kSteps = 2 * Of::kRunsOfSpan;
                const int first_step = Of::kIsHalved ? span / 2 * 2 : span * kSteps;
                float of_x_alone[kGroups][4] = {}; // the sums of activations, for offsets
                if constexpr (kHasOffsets) {
                    constexpr unsigned kOnes = std::is_same_v<T, __nv_bfloat16> ? 0x3f803f80u : 0x3c003c00u;
                    const unsigned ones[4] = {kOnes, kOnes, kOnes, kOnes};
#pragma unroll
                    for (int s = 0; s < kSteps; ++s)
                        for_each_input(first_step + s, [&](int j, const unsigned(&of_x)[2]) {
                            multiply_16x8x16<T>(of_x_alone[j], ones, of_x);
                        });
                }
#pragma unroll
                for (int i = 0; i < kTiles; ++i) {
                    float of_span[kGroups][4] = {}; // of groups
#pragma unroll
                    for (int s = 0; s < kSteps; ++s) {
                        unsigned low[2], high[2];
                        weights_of_step<T, W>(weights[a][i][0], first_step + s, table, low);
                        weights_of_step<T, W>(weights[a][i][1], first_step + s, table, high);
                        const unsigned of_w[4] = {low[0], high[0], low[1], high[1]};
                        for_each_input(first_step + s, [&](int j, const unsigned(&of_x)[2]) {
                            multiply_16x8x16<T>(Of::kHasGroups ? of_span[j] : sums[i][j], of_w, of_x);
                        });
                    }
                    if constexpr (Of::kHasGroups)
#pragma unroll
                        for (int j = 0; j < kGroups; ++j)
#pragma unroll
                            for (int c = 0; c < 4; ++c) {
                                const ScalesOfChunk<W>& of_output = scales_there[a][i][c / 2];
                                sums[i][j][c] = fmaf(of_output.scale(span), of_span[j][c], sums[i][j][c]);
                                if constexpr (kHasOffsets)
                                    sums[i][j][c] = fmaf(-of_output.offset(span), of_x_alone[j][c], sums[i][j][c]);
                            }
                }
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

// Returns the product of an expert, whose weights are of type W, with the rows that go through it.
template <typename W> __device__ Linear of_expert(const ExpertLinear& call, int expert) {
    Linear mine = call;
    const std::size_t first = static_cast<std::size_t>(expert) * static_cast<std::size_t>(call.n);
    if constexpr (Chunk<W>::kIsCoded) {
        const std::size_t chunks = first * static_cast<std::size_t>(Chunk<W>::count(call));
        mine.w = static_cast<const std::byte*>(call.w) + chunks * kChunkBytes;
        if constexpr (Chunk<W>::kHasGroups)
            mine.group_scales = static_cast<const std::byte*>(call.group_scales) + chunks * (4 * Chunk<W>::kScaleWords);
        else
            mine.scales += first;
    } else {
        mine.w = static_cast<const W*>(call.w) + first * static_cast<std::size_t>(call.stride);
    }
    if (call.bias != nullptr) mine.bias += first;
    mine.rows = call.begin[expert + 1];
    return mine;
}

template <typename T, typename W, int kTiles, int kGroups>
__global__ void __launch_bounds__(kWarps* kWarp, kGroups < kMaxGroups ? 2 : 1) multiply_experts(ExpertLinear call) {
    begin_kernel();
    const int expert = call.live[blockIdx.y];
    if (expert < 0) return; // the whole block
    const Linear mine = of_expert<W>(call, expert);
    for (int first = call.begin[expert]; first < mine.rows; first += kRowGroup * kGroups) {
        multiply_block<T, W, kTiles, kGroups>(Part{mine, first}, Listed{call.from_rows}, [] {});
        __syncthreads(); // the sums of the warps have been read
    }
}

// Returns a grid with blocks for that many outputs.
template <typename W, int kTiles, int kGroups> Grid grid_of(int outputs, unsigned experts) {
    constexpr std::size_t kShared = kSumBytes<kGroups> + (kFormOf<W>.code == Code::table ? kPairBytes : 0);
    static_assert(kShared <= 48 * 1024);
    const unsigned blocks = blocks_for(static_cast<std::size_t>(outputs), kTile * kTiles);
    return {dim3(blocks, experts), kWarps * kWarp, kShared};
}

// With groups, which need registers for their own sums, registers hold the sums of fewer rows.
template <typename W> inline constexpr int kGroupsAtMost = Chunk<W>::kHasGroups ? 2 : kMaxGroups;

// If a chunk has many scales, they do not hold those of twice the outputs either.
template <typename W, int kGroups>
inline constexpr int kManyTiles = Chunk<W>::kHasGroups&& Chunk<W>::kScaleWords > 2 / kGroups ? 1 : 2;

// Returns the largest number of experts that may have pairs.
inline unsigned most_live(const ExpertLinear& call) {
    return static_cast<unsigned>(std::min(call.n_experts, call.rows));
}

// Uses enough row groups for an expert's rows, as if rows were spread evenly over experts.
template <typename T, typename W> void multiply_expert_tiles(void* stream, const ExpertLinear& call) {
    const int of_each = blocks_for(static_cast<std::size_t>(call.rows), static_cast<std::size_t>(call.n_experts));
    const auto multiply = [&]<int kTiles, int kGroups>() {
        launch(stream, grid_of<W, kTiles, kGroups>(call.n, most_live(call)), multiply_experts<T, W, kTiles, kGroups>,
               call);
    };
    if constexpr (Chunk<W>::kHasGroups) // more rows at once would be spilled
        multiply.template operator()<1, 1>();
    else if (of_each <= kRowGroup)
        multiply.template operator()<1, 1>();
    else if (of_each <= 4 * kRowGroup)
        multiply.template operator()<1, 4>();
    else
        multiply.template operator()<2, kMaxGroups>();
}

// The matrix's shape alone decides how k is shared, and with it the order of a sum; the rows do not.
template <typename T, typename W> void multiply_tiles(void* stream, const Linear& call) {
    constexpr int kManyOutputs = 8192; // from here blocks of 32 outputs still fill every multiprocessor several times
    constexpr int kGroupsAtOnce = kGroupsAtMost<W>;
    const bool has_many = call.n >= kManyOutputs;
    for (int first = 0; first < call.rows; first += kRowGroup * kGroupsAtOnce) {
        const Part part = {call, first};
        const int left = call.rows - first;
        const auto multiply = [&]<int kFew, int kMany, int kGroups>() {
            has_many ? launch(stream, grid_of<W, kMany, kGroups>(call.n, 1),
                              multiply_tensor_cores<T, W, kMany, kGroups>, part)
                     : launch(stream, grid_of<W, kFew, kGroups>(call.n, 1), multiply_tensor_cores<T, W, kFew, kGroups>,
                              part);
        };
        if (left <= kRowGroup)
            multiply.template operator()<1, kManyTiles<W, 1>, 1>();
        else if (left <= 2 * kRowGroup || kGroupsAtOnce == 2)
            multiply.template operator()<1, kManyTiles<W, 2>, 2>();
        else if constexpr (kGroupsAtOnce > 2) {
            if (left <= 4 * kRowGroup)
                multiply.template operator()<1, 2, 4>();
            else // rows come from the second-level cache: so for twice the outputs, if registers hold them
                multiply.template operator()<2, std::is_same_v<T, W> ? 4 : 2, kMaxGroups>();
        }
    }
}

// Calls f with a number of the type of a call's codes. Throws std::invalid_argument if no kernel knows them.
template <int i = 0, typename Function> void with_codes(const CodeForm& form, const Function& f) {
    if constexpr (i < static_cast<int>(std::size(kCodeForms))) {
        form == kCodeForms[i] ? f(Coded<i>{}) : with_codes<i + 1>(form, f);
    } else {
        throw std::invalid_argument("codes in a form that no kernel knows");
    }
}

// As linear(), for codes with group scales; in linear_groups.cu.
void linear_groups(void* stream, const Linear& call);
void expert_linear_groups(void* stream, const ExpertLinear& call);

} // namespace entrodraft::model::gpu
