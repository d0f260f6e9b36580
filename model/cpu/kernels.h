// The small-row CPU kernels, as a table of functions for one instruction set, chosen once at run time.
//
// Every kernel computes a row alone, in a fixed order of additions. Its result depends neither on the number of rows
// computed with it nor on how threads share outputs. Packed weights have outputs in the lanes (packed_matrix.h);
// activations are row-major float32. Called by decoder and packed_matrix.
#pragma once

#include "model/families/config.h"
#include "model/pass/kv_head.h"
#include "model/pass/logit_stats.h"

#include <cstddef>
#include <cstdint>

namespace entrodraft::model::kernels {

inline constexpr int kLanes = 16;     // outputs of a unit; outputs are padded to whole units
inline constexpr int kMaxQueries = 6; // queries of one attention call

// The form of groups' scales and of their offsets. steps: a byte, times a float16 that kOuterGroup inputs share.
// nibbles: likewise, but a byte has a scale in its lower half and an offset in its upper half.
enum class ScaleType { bfloat16, float16, float32, steps, nibbles };
inline constexpr int kOuterGroup = 256;

// Returns how many bits of a code lie in the first lines of 32 inputs. The other bits are in the lines after these.
constexpr int low_bits(int bits) {
    return bits == 8 ? 8 : bits >= 4 ? 4 : 2;
}

// Weights with a scale per output and group of inputs: w = scale * (code - less) - offset.
struct WeightGroups {
    int size = 0; // inputs that share a scale: a power of two from 16 to kLinearPiece; 0: no groups
    int lead = 0; // inputs of the first group before the first of k; less than size
    ScaleType scales = ScaleType::bfloat16;
    bool has_offsets = false;              // else all are 0
    const float* values = nullptr;         // [16] numbers for 4-bit codes, with less 0; nullptr: the codes themselves
    int bits = 4;                          // per code: 2, 3, 4, 5, 6 or 8
    int less = 8;                          // at most 128
    const std::uint8_t* numbers = nullptr; // [16] 8-bit codes for 4-bit codes; nullptr: the codes themselves
    int outer_lead = 0;                    // inputs of the first kOuterGroup before the first group
    friend bool operator==(const WeightGroups&, const WeightGroups&) = default;
};

// A unit of grouped weights of k inputs consists of lines of 64 bytes. In order: scales [groups][16]; as many offsets
// if there are any; the units of steps, [outer groups][scales, offsets][16]; and codes, `bits` lines per 32 inputs.
struct GroupedUnit {
    constexpr GroupedUnit(const WeightGroups& of, int k)
        : groups((of.lead + k + whole(of) - 1) / whole(of) * (whole(of) / of.size)),
          code_lines(groups * of.size / 32 * of.bits), scale_lines(lines_of(groups * bytes_of(of.scales) * kLanes)),
          offset_lines(of.has_offsets && of.scales != ScaleType::nibbles ? scale_lines : 0),
          outer_lines(!has_steps(of) ? 0
                                     : lines_of((of.outer_lead + groups * of.size + kOuterGroup - 1) / kOuterGroup *
                                                outer_bytes(of))) {}
    // Bytes from the unit's start to each of these.
    constexpr std::size_t offsets() const { return bytes_of_lines(scale_lines); }
    constexpr std::size_t outer() const { return bytes_of_lines(scale_lines + offset_lines); }
    constexpr std::size_t codes() const { return bytes_of_lines(scale_lines + offset_lines + outer_lines); }
    constexpr std::size_t bytes() const { return codes() + bytes_of_lines(code_lines); }
    static constexpr bool has_steps(const WeightGroups& of) { return of.scales >= ScaleType::steps; }
    static constexpr int bytes_of(ScaleType scales) {
        return scales == ScaleType::float32 ? 4 : scales >= ScaleType::steps ? 1 : 2;
    }
    static constexpr int outer_bytes(const WeightGroups& of) { return (of.has_offsets ? 4 : 2) * kLanes; } // per group
    static constexpr int whole(const WeightGroups& of) { return of.size < 32 ? 32 : of.size; } // inputs at a time
    static constexpr int lines_of(int bytes) { return (bytes + 4 * kLanes - 1) / (4 * kLanes); }
    static constexpr std::size_t bytes_of_lines(int lines) { return static_cast<std::size_t>(lines) * 4 * kLanes; }
    int groups;
    int code_lines, scale_lines, offset_lines, outer_lines;
};

// linear's own layout of activations (see LinearArgs::scratch).
inline constexpr int kLinearPiece = 512;
inline constexpr int kLinearPieceStride = 528; // not a multiple of a page: otherwise rows would share cache sets

// For grouped weights, k includes the lead.
constexpr std::size_t linear_scratch_floats(int rows, int k) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>((k + kLinearPiece - 1) / kLinearPiece) *
           kLinearPieceStride;
}

// Running sums over logits, lane by lane. Each lane counts against the largest logit so far of itself and the lanes
// next to it. A multiplication can keep these up while it waits for weights. finish_stats makes LogitStats from them.
struct LaneStats {
    alignas(64) float max[kLanes];
    alignas(64) float sum_exp[kLanes];         // sums of exp(x - max)
    alignas(64) float sum_shifted_exp[kLanes]; // sums of (x - max) exp(x - max)

    void clear(); // as if over no logits
};

// y[r][0..16 * units) = or += sum over k of x[r][k] * w[k][0..16 * units), k in order; int8: = or += scale * sum.
//
// A line of 64 bytes holds the weights of 16 outputs for some inputs, as many as fit. A unit is ceil(k / inputs) lines;
// zeros fill its last line. float32 is [k][16], bfloat16 [k / 2][16][2], float16 [k / 2][2][16]. int8 is
// [k / 4][16][4]: a weight w is stored as w + 128.
//
// A unit of grouped weights is a GroupedUnit. Its inputs are the groups' lead, k, and inputs that fill the last group;
// x is 0 before and after k. Codes of whole numbers are unsigned. 32 inputs of 16 outputs lie in lines [16][4]:
// - 8 bits: line i, byte j has input 4 i + j.
// - 4 bits: line i, byte j has input 8 i + j, and 4 bits above it 8 i + 4 + j.
// - 2 bits: line i, byte j, from bit 2 v on, has input 16 i + 4 v + j.
// - 1 bit: byte j, bit v has input 4 v + j.
// 3, 5 and 6 bits are low_bits() of them, then the upper 1, 1 and 2. float8 (e4m3) is [inputs / 4][4][16].
struct LinearArgs {
    const void* w = nullptr; // [units][lines], 64-byte aligned
    WeightType type = WeightType::float32;
    const float* scales = nullptr;       // [16 * units], for int8 without groups
    WeightGroups groups = {};            // for int4 up to 4 bits, for int8 up to 8, for float8
    const std::int32_t* order = nullptr; // [k], for groups without a lead: input i is multiplied with x[order[i]]
    int digits = 3; // for int4 and int8: bytes that x is rounded to, with a scale per 32 inputs; 1 to 3
    int k = 0;
    int units = 0;
    const float* x = nullptr;
    std::size_t x_stride = 0;
    int rows = 0;
    float* y = nullptr;
    std::size_t y_stride = 0;
    bool add = false;
    bool is_prompt = false;     // x may be rounded to the weights' type, the same for any number of rows
    float* scratch = nullptr;   // linear_scratch_floats(rows, k), this thread's own
    LaneStats* stats = nullptr; // [rows]: also sums up the first stats_outputs outputs of each row as logits
    int stats_outputs = 0;
};

// out[i][d] = sum over keys first_key[i] <= j < n_keys[i] of softmax_j(scale q[i] . key[j]) * value[j][d], keys in
// order. With `mask` (by_parent), key j >= mask_begin[i] counts for query i only if bit j - mask_begin[i] of mask[i] is
// set. Queries of several sequences may go together if the sequences begin with the same keys.
struct AttentionArgs {
    const float* q[kMaxQueries] = {}; // [head_dim] each
    float* out[kMaxQueries] = {};     // [value_dim] each
    int first_key[kMaxQueries] = {};  // for a sliding window; 0: all from the first
    int n_keys[kMaxQueries] = {};
    const std::uint64_t* mask[kMaxQueries] = {}; // nullptr: all of n_keys
    int mask_begin[kMaxQueries] = {};
    int n_queries = 0;
    int head_dim = 0, value_dim = 0;
    float scale = 1;
    float soft_cap = 0; // a scaled score s becomes soft_cap tanh(s / soft_cap); 0: it stays
    // ALiBi: the score of key j gains bias[i][j], [n_keys rounded up to 16]; nullptr: it stays.
    const float* bias[kMaxQueries] = {};
    const float* sink[kMaxQueries] = {};      // one more score in the softmax, without a value; nullptr: none
    WeightType kv_type = WeightType::float32; // of all keys and values: also bfloat16, float16, int8
    KvHead kv[kMaxQueries] = {};
    bool apart = false; // keys and values differ between queries
    // The first n_prefix keys and values of all queries lie here instead, in the same places. n_prefix is a multiple of
    // 16, at most n_keys.
    KvHead prefix = {};
    int n_prefix = 0;
    float* scratch = nullptr; // [n_queries][scratch_stride], stride >= n_keys rounded up to 16
    std::size_t scratch_stride = 0;
};

// A row of gated DeltaNet changes a state, [key_dim][value_dim], and reads it:
//   delta = step (value - decay key state), state = decay state + key delta, out = query state.
struct DeltaStepArgs {
    float* state = nullptr;
    const float* query = nullptr; // [key_dim]
    const float* key = nullptr;   // [key_dim]
    const float* value = nullptr; // [value_dim]
    float decay = 1, step = 1;
    int key_dim = 0, value_dim = 0; // value_dim is a multiple of kLanes
    float* out = nullptr;           // [value_dim]
};

struct Kernels {
    const char* name; // "amx", "avx512bf16", "avx512vnni", "avx512", "avx2", "portable"
    void (*linear)(const LinearArgs& args);
    void (*attention)(const AttentionArgs& args);
    // out = x * rsqrt(mean(x^2) + epsilon) * weight, over n elements.
    void (*rms_norm)(const float* x, const float* weight, int n, float epsilon, float* out);
    // out = (x - mean(x)) * rsqrt(mean((x - mean(x))^2) + epsilon) * weight + bias; nullptr: 1 and 0.
    void (*layer_norm)(const float* x, const float* weight, const float* bias, int n, float epsilon, float* out);
    // x = f(x), or f(x) * factor if factor is not null, over n elements. gelu's absolute error is below 1e-6.
    void (*activate)(Activation activation, float* x, const float* factor, int n);
    // x = cap * tanh(x / cap), over n elements.
    void (*soft_cap)(float* x, float cap, int n);
    // Rotates pairs (i, i + half) by the angles whose cosines and sines are given, in place.
    void (*rotate_half)(float* head, const float* cosines, const float* sines, int half);
    // The same for pairs (2 i, 2 i + 1).
    void (*rotate_pairs)(float* head, const float* cosines, const float* sines, int half);
    // out[i] = sum over j of weights[j][i] * rows[j][i], for n numbers. A null row counts as zeros.
    void (*convolve)(const float* const* rows, const float* weights, int n_rows, int n, float* out);
    void (*delta_step)(const DeltaStepArgs& args);
    // logit_max finds the largest value only; logit_stats computes all statistics.
    LogitStats (*logit_max)(const float* logits, int n, int first_index);
    LogitStats (*logit_stats)(const float* logits, int n, int first_index);
    // The same statistics, from sums that linear has kept over these n logits.
    LogitStats (*finish_stats)(const LaneStats& lanes, const float* logits, int n, int first_index);
    // Returns the sum of the floats, read as fast as possible; `prefetch` asks for lines ahead. For the roofline.
    float (*read_sum)(const float* data, std::size_t n, bool prefetch);
    // Runs multiply-adds on registers; returns the number of floating-point operations.
    double (*spin_multiply_add)(int iterations, float* sink);
};

// Returns the fastest table that this processor can run.
const Kernels& best_kernels();
// Returns the table of that name, or nullptr if the processor or the build lacks it. For tests.
const Kernels* kernels_named(const char* name);

} // namespace entrodraft::model::kernels
