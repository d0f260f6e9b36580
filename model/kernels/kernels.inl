// The kernels themselves, written once over vectors of kWidth lanes and compiled for each instruction set by
// kernels_avx512.cpp, kernels_avx2.cpp and kernels_portable.cpp, which define KERNEL_SET. Includes nothing with
// inline functions of its own, so that no code compiled for a newer processor leaks into the rest of the program.
#include "entrodraft/model/kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

#define ALWAYS_INLINE inline __attribute__((always_inline))

// Lanes of a register, and how many rows of sums go with how many units of 16 outputs in the register file.
#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kWidth), aligned(4)));
typedef std::int32_t IntVec __attribute__((vector_size(4 * kWidth), aligned(4)));
typedef std::uint32_t UintVec __attribute__((vector_size(4 * kWidth), aligned(4)));
typedef std::uint16_t HalfVec __attribute__((vector_size(2 * kWidth), aligned(2)));

ALWAYS_INLINE Vec splat(float value) {
    return value - Vec{}; // subtracting zero changes nothing, and compilers know it; adding it would cost an addition
}

// The larger of each lane; b where a is no number. One instruction, where the ternary takes two.
ALWAYS_INLINE Vec larger(Vec a, Vec b) {
#if defined(__AVX512F__)
    return __builtin_bit_cast(
        Vec, _mm512_maskz_max_ps(0xffff, __builtin_bit_cast(__m512, a), __builtin_bit_cast(__m512, b)));
#elif defined(__AVX2__)
    return __builtin_bit_cast(Vec, _mm256_max_ps(__builtin_bit_cast(__m256, a), __builtin_bit_cast(__m256, b)));
#else
    return a > b ? a : b;
#endif
}

struct Float32 {
    static constexpr int kBytes = 4;
    static ALWAYS_INLINE Vec load(const char* p) { return *reinterpret_cast<const Vec*>(p); }
};

struct BFloat16 {
    static constexpr int kBytes = 2;
    static ALWAYS_INLINE Vec load(const char* p) {
        const UintVec bits = __builtin_convertvector(*reinterpret_cast<const HalfVec*>(p), UintVec) << 16;
        return __builtin_bit_cast(Vec, bits);
    }
};

struct Float16 {
    static constexpr int kBytes = 2;
    static ALWAYS_INLINE Vec load(const char* p) {
#if defined(__AVX512F__)
        const __m512 wide = _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
        return __builtin_bit_cast(Vec, wide);
#elif defined(__F16C__)
        const __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
        return __builtin_bit_cast(Vec, wide);
#else
        // Shift exponent and mantissa into place, then scale by 2^112 to correct the exponent's bias.
        const UintVec half = __builtin_convertvector(*reinterpret_cast<const HalfVec*>(p), UintVec);
        const UintVec magnitude = (half & 0x7fffu) << 13;
        const UintVec special = UintVec(magnitude >= (0x7c00u << 13)) & 0x7f800000u;
        const Vec scaled = __builtin_bit_cast(Vec, magnitude) * 0x1p112f;
        const UintVec bits = __builtin_bit_cast(UintVec, scaled) | special | ((half & 0x8000u) << 16);
        return __builtin_bit_cast(Vec, bits);
#endif
    }
};

// ---- exponential ----

constexpr float kMasked = -3.0e38f;       // a score or logit that does not count
constexpr float kLowestExponent = -87.0f; // exp of less is nearly subnormal

// exp(x) for kLowestExponent <= x <= 0, as 2^n 2^f with |f| <= 1/2. Relative error below 2e-7 (3e-6 for large -x,
// where x log2(e) is rounded).
ALWAYS_INLINE Vec exp_in_range(Vec x) {
    constexpr float kLog2E = 1.44269504088896341f;
    const Vec magic = splat(12582912.0f); // 1.5 * 2^23: adding it rounds to an integer
    const Vec shifted = x * kLog2E + magic;
    const Vec f = x * kLog2E - (shifted - magic);
    Vec p = splat(1.3276472454890609e-3f); // minimax over relative error, degree 5
    p = p * f + 9.675541892647743e-3f;
    p = p * f + 5.550713092088699e-2f;
    p = p * f + 2.4022120237350464e-1f;
    p = p * f + 6.931469440460205e-1f;
    p = p * f + 1.0000001192092896f;
    const IntVec exponent = __builtin_bit_cast(IntVec, shifted) << 23;
    const IntVec bits = __builtin_bit_cast(IntVec, p) + exponent;
    return __builtin_bit_cast(Vec, bits);
}

// exp(x) for x <= 0; less than kLowestExponent counts as that.
ALWAYS_INLINE Vec exp_nonpositive(Vec x) {
    return exp_in_range(larger(x, splat(kLowestExponent)));
}

// ---- linear ----

// Activations are laid out anew in pieces of kPiece inputs, every row of a piece a fixed distance apart, so that the
// inner loop reaches all rows from one pointer: [k / kPiece][rows][kPieceStride].
constexpr int kPiece = kLinearPiece;
constexpr int kPieceStride = kLinearPieceStride;

void lay_out(const LinearArgs& a) {
    for (int piece = 0, k = 0; k < a.k; ++piece, k += kPiece) {
        const int count = a.k - k < kPiece ? a.k - k : kPiece;
        for (int r = 0; r < a.rows; ++r) {
            const float* from = a.x + static_cast<std::size_t>(r) * a.x_stride + k;
            float* to = a.scratch + (static_cast<std::size_t>(piece) * static_cast<std::size_t>(a.rows) +
                                     static_cast<std::size_t>(r)) *
                                        kPieceStride;
            int i = 0;
            for (; i + kWidth <= count; i += kWidth)
                *reinterpret_cast<Vec*>(to + i) = *reinterpret_cast<const Vec*>(from + i);
            for (; i < count; ++i)
                to[i] = from[i];
        }
    }
}

// Takes the outputs x of a unit, or a part of it from `lane` on, into a row's running sums.
ALWAYS_INLINE void take_logits(LaneStats& stats, int lane, Vec x) {
    Vec* max = reinterpret_cast<Vec*>(stats.max + lane);
    Vec* sum = reinterpret_cast<Vec*>(stats.sum_exp + lane);
    Vec* shifted = reinterpret_cast<Vec*>(stats.sum_shifted_exp + lane);
    const Vec top = larger(x, *max);
    const Vec lowest = splat(kLowestExponent);
    const Vec fall = larger(*max - top, lowest), d = larger(x - top, lowest);
    const Vec keep = exp_in_range(fall), e = exp_in_range(d);
    *shifted = (*shifted + fall * *sum) * keep + d * e;
    *sum = *sum * keep + e;
    *max = top;
}

// The same for a whole block; outputs from stats_outputs on do not count.
template <int kRows, int kVectors>
ALWAYS_INLINE void take_outputs(const LinearArgs& a, int unit, int first_row, const Vec (&sums)[kRows][kVectors]) {
    for (int v = 0; v < kVectors; ++v) {
        const int output = unit * kLanes + v * kWidth, counted = a.stats_outputs - output;
        if (counted <= 0) return;
        for (int r = 0; r < kRows; ++r) {
            Vec x = sums[r][v];
            for (int lane = counted; lane < kWidth; ++lane)
                x[lane] = kMasked;
            take_logits(a.stats[first_row + r], v * kWidth % kLanes, x);
        }
    }
}

// Rows [first_row, first_row + kRows) of units [unit, unit + kUnits): sums held in registers while k runs over the
// whole of K. Each unit is a stream of its own, read once; kLookAhead steps of k ahead its lines are asked for, and
// near the end the first lines of the units that follow.
template <typename Weight, int kRows, int kUnits> void linear_block(const LinearArgs& a, int unit, int first_row) {
    constexpr int kVectors = kUnits * kLanes / kWidth, kLookAhead = 32;
    constexpr std::size_t kStep = kLanes * Weight::kBytes;
    const std::size_t unit_bytes = static_cast<std::size_t>(a.k) * kStep;
    const char* w = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
    const int turn = a.k > kLookAhead ? a.k - kLookAhead : 0; // from here on the next units are asked for
    Vec sums[kRows][kVectors] = {};
    for (int k = 0; k < a.k;) {
        const int piece = k / kPiece, in_piece = k % kPiece;
        int end = (piece + 1) * kPiece < a.k ? (piece + 1) * kPiece : a.k;
        if (k < turn && turn < end) end = turn;
        const float* x =
            a.scratch +
            (static_cast<std::size_t>(piece) * static_cast<std::size_t>(a.rows) + static_cast<std::size_t>(first_row)) *
                kPieceStride +
            in_piece;
        const char* ahead = w + kLookAhead * kStep + (k < turn ? 0 : (kUnits - 1) * unit_bytes);
        for (; k < end; ++k, ++x, w += kStep, ahead += kStep) {
            Vec weight[kVectors];
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v)
                weight[v] = Weight::load(w + static_cast<std::size_t>(v * kWidth / kLanes) * unit_bytes +
                                         (v * kWidth % kLanes) * Weight::kBytes);
#pragma GCC unroll 4
            for (int u = 0; u < kUnits; ++u)
                __builtin_prefetch(ahead + static_cast<std::size_t>(u) * unit_bytes);
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r) {
                const Vec broadcast = splat(x[r * kPieceStride]);
#pragma GCC unroll 8
                for (int v = 0; v < kVectors; ++v)
                    sums[r][v] += broadcast * weight[v];
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
            Vec* out = reinterpret_cast<Vec*>(a.y + static_cast<std::size_t>(first_row + r) * a.y_stride +
                                              unit * kLanes + v * kWidth);
            *out = a.add ? *out + sums[r][v] : sums[r][v];
        }
    }
    if (a.stats) take_outputs<kRows, kVectors>(a, unit, first_row, sums);
}

// Calls the block of exactly `rows` rows, 1 <= rows <= kRows.
template <typename Weight, int kUnits, int kRows>
ALWAYS_INLINE void linear_exact(const LinearArgs& a, int unit, int first_row, int rows) {
    if constexpr (kRows == 1) {
        linear_block<Weight, 1, kUnits>(a, unit, first_row);
    } else {
        if (rows == kRows) return linear_block<Weight, kRows, kUnits>(a, unit, first_row);
        linear_exact<Weight, kUnits, kRows - 1>(a, unit, first_row, rows);
    }
}

// All units, kUnits at a time and what is left over one by one; rows in even blocks (16 rows go as 8 and 8, not as
// 14 and 2).
template <typename Weight, int kUnits, int kMostRows> void linear_units(const LinearArgs& a) {
    const int blocks = (a.rows + kMostRows - 1) / kMostRows;
    for (int unit = 0; unit < a.units;) {
        const bool whole = unit + kUnits <= a.units;
        for (int block = 0, row = 0; block < blocks; ++block) {
            const int rows = (a.rows - row + blocks - block - 1) / (blocks - block);
            if (whole)
                linear_exact<Weight, kUnits, kMostRows>(a, unit, row, rows);
            else
                linear_exact<Weight, 1, kMostRows>(a, unit, row, rows);
            row += rows;
        }
        unit += whole ? kUnits : 1;
    }
}

// As many units at once as leave the sums of all rows in registers: each weight is then read once.
template <typename Weight> void linear_typed(const LinearArgs& a) {
    lay_out(a);
#if defined(__AVX512F__)
    if (a.rows <= 6) return linear_units<Weight, 4, 6>(a);
    if (a.rows <= 9) return linear_units<Weight, 3, 9>(a);
    if (a.rows == 15 || a.rows == 16) return linear_units<Weight, 1, 16>(a);
    linear_units<Weight, 2, 14>(a);
#elif defined(__AVX2__)
    if (a.rows <= 2) return linear_units<Weight, 2, 2>(a);
    linear_units<Weight, 1, 6>(a);
#else
    linear_units<Weight, 1, 3>(a);
#endif
}

void linear(const LinearArgs& a) {
    switch (a.type) {
    case WeightType::float32:
        return linear_typed<Float32>(a);
    case WeightType::bfloat16:
        return linear_typed<BFloat16>(a);
    case WeightType::float16:
        return linear_typed<Float16>(a);
    }
}

// ---- elementwise ----

// Sum of the lanes, always in the same order.
ALWAYS_INLINE float sum_lanes(Vec v) {
    float lane[kWidth];
    for (int i = 0; i < kWidth; ++i)
        lane[i] = v[i];
    for (int width = kWidth / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i)
            lane[i] += lane[i + width];
    return lane[0];
}

ALWAYS_INLINE float max_lanes(Vec v) {
    float largest = v[0];
    for (int i = 1; i < kWidth; ++i)
        largest = v[i] > largest ? v[i] : largest;
    return largest;
}

void rms_norm(const float* x, const float* weight, int n, float epsilon, float* out) {
    Vec sum0 = {}, sum1 = {};
    int i = 0;
    for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
        const Vec a = *reinterpret_cast<const Vec*>(x + i), b = *reinterpret_cast<const Vec*>(x + i + kWidth);
        sum0 += a * a;
        sum1 += b * b;
    }
    float total = sum_lanes(sum0 + sum1);
    for (; i < n; ++i)
        total += x[i] * x[i];
    const float scale = 1.0f / __builtin_sqrtf(total / static_cast<float>(n) + epsilon);
    for (i = 0; i + kWidth <= n; i += kWidth)
        *reinterpret_cast<Vec*>(out + i) =
            *reinterpret_cast<const Vec*>(x + i) * scale * *reinterpret_cast<const Vec*>(weight + i);
    for (; i < n; ++i)
        out[i] = x[i] * scale * weight[i];
}

// silu(x) = x / (1 + exp(-x)), from exp(-|x|).
ALWAYS_INLINE Vec silu(Vec x) {
    const Vec zero = {};
    const Vec magnitude = x > zero ? x : -x;
    const Vec e = exp_nonpositive(-magnitude);
    const Vec numerator = x > zero ? splat(1.0f) : e;
    return x * numerator / (1.0f + e);
}

void silu_multiply(float* gate, const float* up, int n) {
    int i = 0;
    for (; i + kWidth <= n; i += kWidth) {
        Vec* g = reinterpret_cast<Vec*>(gate + i);
        *g = silu(*g) * *reinterpret_cast<const Vec*>(up + i);
    }
    for (; i < n; ++i)
        gate[i] = silu(splat(gate[i]))[0] * up[i];
}

void rotate_half(float* head, const float* cosines, const float* sines, int half) {
    int i = 0;
    for (; i + kWidth <= half; i += kWidth) {
        Vec* low = reinterpret_cast<Vec*>(head + i);
        Vec* high = reinterpret_cast<Vec*>(head + half + i);
        const Vec c = *reinterpret_cast<const Vec*>(cosines + i), s = *reinterpret_cast<const Vec*>(sines + i);
        const Vec a = *low, b = *high;
        *low = a * c - b * s;
        *high = b * c + a * s;
    }
    for (; i < half; ++i) {
        const float a = head[i], b = head[half + i];
        head[i] = a * cosines[i] - b * sines[i];
        head[half + i] = b * cosines[i] + a * sines[i];
    }
}

// ---- attention ----

// Scores of one block of 16 keys for all queries.
template <int kQueries> ALWAYS_INLINE void score_block(const AttentionArgs& a, int block) {
    const float* block_keys = a.keys + static_cast<std::size_t>(block) * static_cast<std::size_t>(a.head_dim) * kLanes;
    for (int lane = 0; lane < kLanes; lane += kWidth) {
        const float* keys = block_keys + lane;
        Vec sums[kQueries] = {};
        for (int d = 0; d < a.head_dim; ++d) {
            const Vec key = *reinterpret_cast<const Vec*>(keys + d * kLanes);
#pragma GCC unroll 8
            for (int i = 0; i < kQueries; ++i)
                sums[i] += splat(a.q[i][d]) * key;
        }
#pragma GCC unroll 8
        for (int i = 0; i < kQueries; ++i)
            *reinterpret_cast<Vec*>(a.scratch + static_cast<std::size_t>(i) * a.scratch_stride + block * kLanes +
                                    lane) = sums[i] * a.scale;
    }
}

// The keys that some query of a call sees: [begin, end), of which begin and padded stand on borders of blocks.
struct KeyRange {
    int begin = 0;
    int end = 0;
    int padded = 0;
};

// Turns scores into weights that sum to 1 / the returned scale; masked and padded keys get exactly 0.
float soften(const AttentionArgs& a, int query, const KeyRange& keys) {
    float* scores = a.scratch + static_cast<std::size_t>(query) * a.scratch_stride;
    for (int j = keys.begin; j < a.first_key[query]; ++j)
        scores[j] = kMasked;
    for (int j = a.n_keys[query]; j < keys.padded; ++j)
        scores[j] = kMasked;
    if (a.mask[query]) {
        for (int j = a.mask_begin; j < a.n_keys[query]; ++j) {
            const int bit = j - a.mask_begin;
            if (!(a.mask[query][bit / 64] >> (bit % 64) & 1)) scores[j] = kMasked;
        }
    }
    Vec largest = splat(kMasked);
    for (int j = keys.begin; j < keys.padded; j += kWidth) {
        const Vec s = *reinterpret_cast<const Vec*>(scores + j);
        largest = s > largest ? s : largest;
    }
    const Vec top = splat(max_lanes(largest));
    Vec sum = {};
    for (int j = keys.begin; j < keys.padded; j += kWidth) {
        const Vec s = *reinterpret_cast<const Vec*>(scores + j);
        const Vec zero = {};
        const Vec e = s > kMasked ? exp_nonpositive(s - top) : zero;
        *reinterpret_cast<Vec*>(scores + j) = e;
        sum += e;
    }
    return 1.0f / sum_lanes(sum);
}

// Weighted sum of values over columns [first, first + kWidth * kVectors).
template <int kQueries, int kVectors>
ALWAYS_INLINE void mix_columns(const AttentionArgs& a, const float* scales, int first, const KeyRange& keys) {
    Vec sums[kQueries][kVectors] = {};
    const float* value = a.values + static_cast<std::size_t>(keys.begin) * static_cast<std::size_t>(a.head_dim) + first;
    for (int j = keys.begin; j < keys.end; ++j, value += a.head_dim) {
        Vec v[kVectors];
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c)
            v[c] = *reinterpret_cast<const Vec*>(value + c * kWidth);
#pragma GCC unroll 8
        for (int i = 0; i < kQueries; ++i) {
            const Vec weight =
                splat(a.scratch[static_cast<std::size_t>(i) * a.scratch_stride + static_cast<std::size_t>(j)]);
#pragma GCC unroll 4
            for (int c = 0; c < kVectors; ++c)
                sums[i][c] += weight * v[c];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i)
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c)
            *reinterpret_cast<Vec*>(a.out[i] + first + c * kWidth) = sums[i][c] * scales[i];
}

template <int kQueries> void attention_exact(const AttentionArgs& a) {
    KeyRange keys = {a.first_key[0], 0, 0};
    for (int i = 0; i < kQueries; ++i) {
        keys.begin = a.first_key[i] < keys.begin ? a.first_key[i] : keys.begin;
        keys.end = a.n_keys[i] > keys.end ? a.n_keys[i] : keys.end;
    }
    keys.begin = keys.begin / kLanes * kLanes;
    keys.padded = (keys.end + kLanes - 1) / kLanes * kLanes;
    for (int block = keys.begin / kLanes; block < keys.padded / kLanes; ++block)
        score_block<kQueries>(a, block);
    float scales[kQueries];
    for (int i = 0; i < kQueries; ++i)
        scales[i] = soften(a, i, keys);
    int column = 0;
    for (; column + kWidth * 4 <= a.head_dim; column += kWidth * 4)
        mix_columns<kQueries, 4>(a, scales, column, keys);
    for (; column + kWidth <= a.head_dim; column += kWidth)
        mix_columns<kQueries, 1>(a, scales, column, keys);
    if (column == a.head_dim) return;
    // What is left over goes with columns before it, again in a whole vector: alone, its sums might be rounded
    // otherwise for another number of queries.
    if (a.head_dim >= kWidth) return mix_columns<kQueries, 1>(a, scales, a.head_dim - kWidth, keys);
    for (; column < a.head_dim; ++column) {
        for (int i = 0; i < kQueries; ++i) {
            float sum = 0;
            for (int j = keys.begin; j < keys.end; ++j)
                sum = __builtin_fmaf(
                    a.scratch[static_cast<std::size_t>(i) * a.scratch_stride + static_cast<std::size_t>(j)],
                    a.values[static_cast<std::size_t>(j) * static_cast<std::size_t>(a.head_dim) +
                             static_cast<std::size_t>(column)],
                    sum);
            a.out[i][column] = sum * scales[i];
        }
    }
}

void attention(const AttentionArgs& a) {
    switch (a.n_queries) {
    case 1:
        return attention_exact<1>(a);
    case 2:
        return attention_exact<2>(a);
    case 3:
        return attention_exact<3>(a);
    case 4:
        return attention_exact<4>(a);
    case 5:
        return attention_exact<5>(a);
    case 6:
        return attention_exact<6>(a);
    default:
        return;
    }
}

// ---- logits ----

// Largest of n values; minus infinity where there are none.
ALWAYS_INLINE float largest_of(const float* x, int n) {
    Vec top0 = splat(-__builtin_inff()), top1 = top0;
    int i = 0;
    for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
        top0 = larger(*reinterpret_cast<const Vec*>(x + i), top0);
        top1 = larger(*reinterpret_cast<const Vec*>(x + i + kWidth), top1);
    }
    float largest = max_lanes(larger(top0, top1));
    for (; i < n; ++i)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}

// Sums of exp(x - max) and (x - max) exp(x - max) over a block whose maximum is known.
ALWAYS_INLINE LogitStats sums_of(const float* x, int n, float max) {
    Vec sum0 = {}, sum1 = {}, shifted0 = {}, shifted1 = {};
    const Vec top = splat(max), lowest = splat(kLowestExponent);
    int i = 0;
    for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
        // Cut off below, so that minus infinity times zero cannot arise.
        const Vec d0 = larger(*reinterpret_cast<const Vec*>(x + i) - top, lowest);
        const Vec d1 = larger(*reinterpret_cast<const Vec*>(x + i + kWidth) - top, lowest);
        const Vec e0 = exp_in_range(d0), e1 = exp_in_range(d1);
        sum0 += e0;
        sum1 += e1;
        shifted0 += d0 * e0;
        shifted1 += d1 * e1;
    }
    LogitStats stats;
    stats.max = max;
    stats.sum_exp = static_cast<double>(sum_lanes(sum0 + sum1));
    stats.sum_shifted_exp = static_cast<double>(sum_lanes(shifted0 + shifted1));
    for (; i < n; ++i) {
        float d = x[i] - max;
        d = d > kLowestExponent ? d : kLowestExponent;
        const float e = exp_in_range(splat(d))[0];
        stats.sum_exp += static_cast<double>(e);
        stats.sum_shifted_exp += static_cast<double>(d * e);
    }
    return stats;
}

ALWAYS_INLINE bool any_equal(Vec a, Vec b) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(__builtin_bit_cast(__m512, a), __builtin_bit_cast(__m512, b), _CMP_EQ_OQ) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(
               _mm256_cmp_ps(__builtin_bit_cast(__m256, a), __builtin_bit_cast(__m256, b), _CMP_EQ_OQ)) != 0;
#else
    const IntVec equal = a == b;
    return (equal[0] | equal[1] | equal[2] | equal[3]) != 0;
#endif
}

// First index of a value that is known to occur.
ALWAYS_INLINE int index_of(const float* x, int n, float value) {
    int i = 0;
    while (i + kWidth <= n && !any_equal(*reinterpret_cast<const Vec*>(x + i), splat(value)))
        i += kWidth;
    for (; i < n; ++i)
        if (x[i] == value) return i;
    return 0; // nothing but minus infinity and no numbers
}

LogitStats logit_max(const float* logits, int n, int first_index) {
    LogitStats stats;
    stats.max = largest_of(logits, n);
    stats.arg_max = first_index + index_of(logits, n, stats.max);
    return stats;
}

// One pass over the memory, a first-level cache's worth of logits at a time: a block's maximum, then its sums.
LogitStats logit_stats(const float* logits, int n, int first_index) {
    constexpr int kBlockOfLogits = 4096;
    LogitStats total;
    for (int begin = 0; begin < n; begin += kBlockOfLogits) {
        const int count = n - begin < kBlockOfLogits ? n - begin : kBlockOfLogits;
        const float* x = logits + begin;
        LogitStats part = sums_of(x, count, largest_of(x, count));
        part.arg_max = first_index + begin; // of the block, for now
        total = begin == 0 ? part : merge(total, part);
    }
    if (n <= 0) return total;
    const int block = total.arg_max - first_index;
    total.arg_max += index_of(logits + block, n - block < kBlockOfLogits ? n - block : kBlockOfLogits, total.max);
    return total;
}

// A lane's sums count against the largest maximum of all lanes.
LogitStats finish_stats(const LaneStats& lanes, const float* logits, int n, int first_index) {
    LogitStats stats;
    stats.max = lanes.max[0];
    for (int lane = 1; lane < kLanes; ++lane)
        stats.max = lanes.max[lane] > stats.max ? lanes.max[lane] : stats.max;
    const Vec top = splat(stats.max), lowest = splat(kLowestExponent);
    Vec sum = {}, shifted = {};
    for (int lane = 0; lane < kLanes; lane += kWidth) {
        const Vec of_lanes = *reinterpret_cast<const Vec*>(lanes.sum_exp + lane);
        const Vec fall = larger(*reinterpret_cast<const Vec*>(lanes.max + lane) - top, lowest);
        const Vec keep = exp_in_range(fall);
        sum += of_lanes * keep;
        shifted += (*reinterpret_cast<const Vec*>(lanes.sum_shifted_exp + lane) + fall * of_lanes) * keep;
    }
    stats.sum_exp = static_cast<double>(sum_lanes(sum));
    stats.sum_shifted_exp = static_cast<double>(sum_lanes(shifted));
    stats.arg_max = first_index + index_of(logits, n, stats.max);
    return stats;
}

// ---- roofline ----

template <bool kPrefetch> ALWAYS_INLINE float read_sum_typed(const float* data, std::size_t n) {
    Vec sums[8] = {};
    for (std::size_t i = 0; i + 8 * kWidth <= n; i += 8 * kWidth) {
#pragma GCC unroll 8
        for (int v = 0; v < 8; ++v) {
            if constexpr (kPrefetch) __builtin_prefetch(data + i + v * kWidth + 2048);
            sums[v] += *reinterpret_cast<const Vec*>(data + i + v * kWidth);
        }
    }
    Vec total = {};
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v)
        total += sums[v];
    return sum_lanes(total);
}

float read_sum(const float* data, std::size_t n, bool prefetch) {
    return prefetch ? read_sum_typed<true>(data, n) : read_sum_typed<false>(data, n);
}

double spin_multiply_add(int iterations, float* sink) {
#if defined(__AVX512F__)
    constexpr int kChains = 24;
#else
    constexpr int kChains = 10;
#endif
    Vec chain[kChains];
#pragma GCC unroll 24
    for (int c = 0; c < kChains; ++c)
        chain[c] = splat(static_cast<float>(c));
    Vec factor = splat(0.999f), term = splat(1e-3f);
    for (int i = 0; i < iterations; ++i) {
#pragma GCC unroll 24
        for (int c = 0; c < kChains; ++c)
            chain[c] = chain[c] * factor + term;
        __asm__ volatile("" : : "m"(*sink)); // keeps the loop a loop
    }
    Vec total = {};
#pragma GCC unroll 24
    for (int c = 0; c < kChains; ++c)
        total += chain[c];
    *sink = sum_lanes(total);
    return static_cast<double>(iterations) * kChains * kWidth * 2;
}

} // namespace

extern const Kernels kTable;
const Kernels kTable = {KERNEL_SET_NAME, linear,      attention,    rms_norm, silu_multiply,    rotate_half,
                        logit_max,       logit_stats, finish_stats, read_sum, spin_multiply_add};

} // namespace entrodraft::model::kernels::KERNEL_SET
