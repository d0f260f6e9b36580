// The small-row CPU kernels, as a table of functions for one instruction set, chosen once at run time.
//
// Every kernel computes a row alone, in a fixed order of additions: its result does not depend on how many
// rows are computed with it, nor on how outputs are shared out among threads. Weights lie packed with outputs
// in the lanes (packed_matrix.h); activations are row-major float32. Called by decoder and packed_matrix.
#pragma once

#include "model/families/config.h"
#include "model/pass/kv_head.h"
#include "model/pass/logit_stats.h"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace entrodraft::model::kernels {

inline constexpr int kLanes = 16;     // outputs of a unit; outputs are padded to whole units
inline constexpr int kMaxQueries = 6; // queries of one attention call

// The form of groups' scales, and of their offsets. steps: a byte, times a float16 that kOuterGroup inputs share;
// nibbles: the same, a scale in the lower half of a byte and an offset in the upper.
enum class ScaleType { bfloat16, float16, float32, steps, nibbles };
inline constexpr int kOuterGroup = 256;

// The bits of a code that lie in the first lines of 32 inputs; the others are in lines behind them.
constexpr int low_bits(int bits) {
    return bits == 8 ? 8 : bits >= 4 ? 4 : 2;
}

// Weights whose scales are those of an output and some inputs: w = scale * (code - less) - offset.
struct WeightGroups {
    int size = 0; // inputs that share a scale: a power of two from 16 to kLinearPiece; 0: no groups
    int lead = 0; // inputs of the first group that lie before the first of k; below size
    ScaleType scales = ScaleType::bfloat16;
    bool has_offsets = false;              // else all are 0
    const float* values = nullptr;         // [16] what codes of 4 bits stand for, less being 0; nullptr: for themselves
    int bits = 4;                          // of a code: 2, 3, 4, 5, 6 or 8
    int less = 8;                          // at most 128
    const std::uint8_t* numbers = nullptr; // [16] the codes of 8 bits that codes of 4 stand for; nullptr: themselves
    int outer_lead = 0;                    // inputs of the first kOuterGroup that lie before the first group
    friend bool operator==(const WeightGroups&, const WeightGroups&) = default;
};

// A unit of grouped weights of k inputs consists of lines of 64 bytes: scales [groups][16], as many offsets, where
// there are any, what steps are counted in, [outer groups][scales, offsets][16], and codes, `bits` lines for 32 inputs.
struct GroupedUnit {
    constexpr GroupedUnit(const WeightGroups& of, int k)
        : groups((of.lead + k + whole(of) - 1) / whole(of) * (whole(of) / of.size)),
          code_lines(groups * of.size / 32 * of.bits), scale_lines(lines_of(groups * bytes_of(of.scales) * kLanes)),
          offset_lines(of.has_offsets && of.scales != ScaleType::nibbles ? scale_lines : 0),
          outer_lines(!has_steps(of) ? 0
                                     : lines_of((of.outer_lead + groups * of.size + kOuterGroup - 1) / kOuterGroup *
                                                outer_bytes(of))) {}
    // Where they begin.
    constexpr std::size_t offsets() const { return bytes_of_lines(scale_lines); }
    constexpr std::size_t outer() const { return bytes_of_lines(scale_lines + offset_lines); }
    constexpr std::size_t codes() const { return bytes_of_lines(scale_lines + offset_lines + outer_lines); }
    constexpr std::size_t bytes() const { return codes() + bytes_of_lines(code_lines); }
    static constexpr bool has_steps(const WeightGroups& of) { return of.scales >= ScaleType::steps; }
    static constexpr int bytes_of(ScaleType scales) {
        return scales == ScaleType::float32 ? 4 : scales >= ScaleType::steps ? 1 : 2;
    }
    static constexpr int outer_bytes(const WeightGroups& of) { return (of.has_offsets ? 4 : 2) * kLanes; } // of a group
    static constexpr int whole(const WeightGroups& of) { return of.size < 32 ? 32 : of.size; } // that kernels take
    static constexpr int lines_of(int bytes) { return (bytes + 4 * kLanes - 1) / (4 * kLanes); }
    static constexpr std::size_t bytes_of_lines(int lines) { return static_cast<std::size_t>(lines) * 4 * kLanes; }
    int groups;
    int code_lines, scale_lines, offset_lines, outer_lines;
};

// How linear lays out activations for itself (see LinearArgs::scratch).
inline constexpr int kLinearPiece = 512;
inline constexpr int kLinearPieceStride = 528; // not a multiple of a page: rows must not share cache sets

// Of grouped weights k counts the lead too.
constexpr std::size_t linear_scratch_floats(int rows, int k) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>((k + kLinearPiece - 1) / kLinearPiece) *
           kLinearPieceStride;
}

// Running sums over logits, lane by lane, each against the largest so far of its lane and those beside it: what a
// multiplication can keep up while it waits for weights. finish_stats makes LogitStats of them.
struct LaneStats {
    alignas(64) float max[kLanes];
    alignas(64) float sum_exp[kLanes];         // of exp(x - max)
    alignas(64) float sum_shifted_exp[kLanes]; // of (x - max) exp(x - max)

    void clear(); // to those of no logits
};

// y[r][0..16 * units) = or += sum over k of x[r][k] * w[k][0..16 * units), k in order; int8: = or += scale * sum.
//
// A line of 64 bytes holds the weights of 16 outputs for as many inputs as fit, a unit is ceil(k / inputs) lines, and
// the last line is filled up with weights of zero: float32 [k][16], bfloat16 [k / 2][16][2], float16 [k / 2][2][16] and
// int8 [k / 4][16][4], where a weight w is stored as w + 128.
//
// Of grouped weights a unit is a GroupedUnit, whose inputs are the groups' lead, k, and what fills the last group; x is
// 0 before and behind k. Codes of whole numbers have no sign. 32 inputs of 16 outputs lie in lines [16][4] of:
//   8 bits     of line i, byte j: input 4 i + j
//   4 bits     of line i, byte j: input 8 i + j, and 4 bits above it 8 i + 4 + j
//   2 bits     of line i, byte j, from bit 2 v on: input 16 i + 4 v + j
//   a bit      of the line, byte j, bit v: input 4 v + j
// 3, 5 and 6 bits are low_bits() of them, then the upper 1, 1 and 2. float8 (e4m3) is [inputs / 4][4][16].
struct LinearArgs {
    const void* w = nullptr; // [units][lines], 64-byte aligned
    WeightType type = WeightType::float32;
    const float* scales = nullptr;       // [16 * units], of int8 without groups
    WeightGroups groups = {};            // int4: of up to 4 bits, int8: of up to 8, float8
    const std::int32_t* order = nullptr; // [k], of groups without a lead: input i is multiplied with x[order[i]]
    int digits = 3; // of int4 and int8: bytes that x is rounded to, 32 inputs under a scale; 1 to 3
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
// order. With `mask` (by_parent), key j >= mask_begin[i] counts for query i only where bit j - mask_begin[i] of
// mask[i] is set. Queries of several sequences may go together where these begin with the same keys.
struct AttentionArgs {
    const float* q[kMaxQueries] = {}; // [head_dim] each
    float* out[kMaxQueries] = {};     // [value_dim] each
    int first_key[kMaxQueries] = {};  // of a sliding window; 0: all from the first
    int n_keys[kMaxQueries] = {};
    const std::uint64_t* mask[kMaxQueries] = {}; // nullptr: all of n_keys
    int mask_begin[kMaxQueries] = {};
    int n_queries = 0;
    int head_dim = 0, value_dim = 0;
    float scale = 1;
    float soft_cap = 0; // a scaled score s becomes soft_cap tanh(s / soft_cap); 0: it stays
    // ALiBi: then the score of key j gains bias[i][j], [n_keys rounded up to 16]; nullptr: it stays.
    const float* bias[kMaxQueries] = {};
    const float* sink[kMaxQueries] = {};      // one more score in the softmax, without a value; nullptr: none
    WeightType kv_type = WeightType::float32; // of all keys and values: also bfloat16, float16, int8
    KvHead kv[kMaxQueries] = {};
    bool apart = false; // they are not the same for all queries
    // The first n_prefix keys and values of all queries, a multiple of 16 and at most n_keys, lie here instead, in the
    // same places.
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
    int key_dim = 0, value_dim = 0; // the second a multiple of kLanes
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
    // x = f(x), or f(x) * factor where there is one, over n elements. gelu's absolute error is below 1e-6.
    void (*activate)(Activation activation, float* x, const float* factor, int n);
    // x = cap * tanh(x / cap), over n elements.
    void (*soft_cap)(float* x, float cap, int n);
    // Rotates pairs (i, i + half) by the angles whose cosines and sines are given, in place.
    void (*rotate_half)(float* head, const float* cosines, const float* sines, int half);
    // The same of pairs (2 i, 2 i + 1).
    void (*rotate_pairs)(float* head, const float* cosines, const float* sines, int half);
    // out[i] = sum over j of weights[j][i] * rows[j][i], of n numbers each; a row may be null, as of zeros.
    void (*convolve)(const float* const* rows, const float* weights, int n_rows, int n, float* out);
    void (*delta_step)(const DeltaStepArgs& args);
    // Largest value alone, and everything.
    LogitStats (*logit_max)(const float* logits, int n, int first_index);
    LogitStats (*logit_stats)(const float* logits, int n, int first_index);
    // The same from sums that linear has kept over these n logits.
    LogitStats (*finish_stats)(const LaneStats& lanes, const float* logits, int n, int first_index);
    // Sum of the floats, read as fast as may be; `prefetch` asks for lines ahead of time. For the roofline.
    float (*read_sum)(const float* data, std::size_t n, bool prefetch);
    // Runs multiply-adds on registers; returns how many floating-point operations it made.
    double (*spin_multiply_add)(int iterations, float* sink);
};

// The fastest table this processor can run.
const Kernels& best_kernels();
// The table of that name, or nullptr where the processor or the build lacks it. For tests.
const Kernels* kernels_named(const char* name);

} // namespace entrodraft::model::kernels
