// The kernels, written once over vectors of kWidth lanes. kernels_avx512.cpp and similar files define KERNEL_SET and
// compile them, each for one instruction set. This file has the vectors, the exponential, the roofline and the table;
// the included files have the rest. It includes no header whose inline functions would be compiled here for a newer
// processor, and then run by the rest of the program.
#include "model/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

#define ALWAYS_INLINE inline __attribute__((always_inline))

// Lanes of a register, and the rows of sums and units of 16 outputs that fit into the register file together.
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
typedef signed char SmallVec __attribute__((vector_size(kWidth), may_alias, aligned(1)));

ALWAYS_INLINE Vec splat(float value) {
    return value - Vec{}; // subtracting zero changes nothing, and compilers know it; adding it would cost an addition
}

// Returns the larger of each lane; b if a is NaN. Takes one instruction, where the ternary takes two.
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

// Returns the smaller of each lane; b if either is NaN.
ALWAYS_INLINE Vec smaller(Vec a, Vec b) {
#if defined(__AVX512F__)
    return __builtin_bit_cast(
        Vec, _mm512_maskz_min_ps(0xffff, __builtin_bit_cast(__m512, a), __builtin_bit_cast(__m512, b)));
#elif defined(__AVX2__)
    return __builtin_bit_cast(Vec, _mm256_min_ps(__builtin_bit_cast(__m256, a), __builtin_bit_cast(__m256, b)));
#else
    return a < b ? a : b;
#endif
}

ALWAYS_INLINE bool any_greater(Vec a, Vec b) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(__builtin_bit_cast(__m512, a), __builtin_bit_cast(__m512, b), _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(
               _mm256_cmp_ps(__builtin_bit_cast(__m256, a), __builtin_bit_cast(__m256, b), _CMP_GT_OQ)) != 0;
#else
    const IntVec greater = a > b;
    return (greater[0] | greater[1] | greater[2] | greater[3]) != 0;
#endif
}

// ---- numbers of 16 bits ----

// Converts kWidth float16 numbers.
ALWAYS_INLINE Vec floats_of_float16(const char* p) {
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

ALWAYS_INLINE Vec floats_of_bfloat16(const char* from) {
    return __builtin_bit_cast(Vec, __builtin_convertvector(*reinterpret_cast<const HalfVec*>(from), UintVec) << 16);
}

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

// Returns exp(x) for x <= 0; x below kLowestExponent counts as kLowestExponent.
ALWAYS_INLINE Vec exp_nonpositive(Vec x) {
    return exp_in_range(larger(x, splat(kLowestExponent)));
}

// Returns cap tanh(x / cap): near zero by its odd polynomial, elsewhere from exp(-2 |x / cap|).
ALWAYS_INLINE Vec capped(Vec x, float cap) {
    const Vec u = x / cap, z = u * u;
    const UintVec sign = __builtin_bit_cast(UintVec, u) & 0x80000000u;
    const UintVec bits = __builtin_bit_cast(UintVec, u) & 0x7fffffffu;
    const Vec magnitude = __builtin_bit_cast(Vec, bits);
    const Vec e = exp_nonpositive(-2.0f * magnitude);
    const UintVec far_bits = __builtin_bit_cast(UintVec, (1.0f - e) / (1.0f + e)) | sign;
    const Vec far = __builtin_bit_cast(Vec, far_bits);
    Vec p = splat(-5.59096e-3f); // fitted to relative error over |u| < 0.64
    p = p * z + 2.053877e-2f;
    p = p * z - 5.370964e-2f;
    p = p * z + 1.3331092e-1f;
    p = p * z - 3.333327e-1f;
    const Vec near = u + u * z * p;
    return cap * (magnitude >= 0.625f ? far : near); // NaN stays NaN
}

// ---- lanes ----

// Combines the lanes, always in the same order: the first half with the second, until one lane is left.
ALWAYS_INLINE auto fold_lanes(auto v, auto combine) {
    if constexpr (sizeof(v) == 16 * sizeof(v[0])) {
        return fold_lanes(combine(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                                  __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)),
                          combine);
    } else if constexpr (sizeof(v) == 8 * sizeof(v[0])) {
        return fold_lanes(combine(__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7)),
                          combine);
    } else {
        const auto pair = combine(v, __builtin_shufflevector(v, v, 2, 3, 2, 3));
        return combine(pair, __builtin_shufflevector(pair, pair, 1, 1, 1, 1))[0];
    }
}

ALWAYS_INLINE auto sum_lanes(auto v) {
    return fold_lanes(
        v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}

ALWAYS_INLINE float max_lanes(Vec v) {
    float largest = v[0];
    for (int i = 1; i < kWidth; ++i)
        largest = v[i] > largest ? v[i] : largest;
    return largest;
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET

// Attention needs the elementwise kernels.
// clang-format off
#include "model/cpu/delta_step.inl"
#include "model/cpu/elementwise.inl"
#include "model/cpu/attend.inl"
#include "model/cpu/linear.inl"
#include "model/cpu/logits.inl"
// clang-format on

namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

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

constexpr Kernels table_of(const char* name, void (*multiply)(const LinearArgs& args)) {
    return {.name = name,
            .linear = multiply,
            .attention = attention,
            .rms_norm = rms_norm,
            .layer_norm = layer_norm,
            .activate = activate,
            .soft_cap = soft_cap,
            .rotate_half = rotate_half,
            .rotate_pairs = rotate_pairs,
            .convolve = convolve,
            .delta_step = delta_step,
            .logit_max = logit_max,
            .logit_stats = logit_stats,
            .finish_stats = finish_stats,
            .read_sum = read_sum,
            .spin_multiply_add = spin_multiply_add};
}

} // namespace

extern const Kernels kTable;
const Kernels kTable = table_of(KERNEL_SET_NAME, linear);
#if defined(__AVX512VNNI__)
extern const Kernels kPairsTable;
const Kernels kPairsTable = table_of("avx512bf16", linear_pairs<linear>);
extern const Kernels kTilesTable;
const Kernels kTilesTable = table_of("amx", linear_pairs<linear_amx>);
#endif

} // namespace entrodraft::model::kernels::KERNEL_SET
