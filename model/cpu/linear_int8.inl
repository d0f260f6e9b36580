// Rows times 8-bit weights in whole numbers, for processors that multiply bytes. Part of linear.inl, which includes it.
//
// A row is taken as x = 2^-e (65536 h + 256 m + l), where h, m and l are signed bytes and e is the row's own: 23 bits
// and a sign under the row's largest value. Sums of weights times h, m and l are exact, so their order means nothing,
// and they are put together in float32 at the end. Weights are stored as w + 128, since one factor has no sign; the 128
// times the sum of a row's digits are taken off beforehand. Sums fit 32 bits up to kMaxInt8Inputs inputs (what
// overflows on the way comes back).
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

constexpr int kDigits = 3;
constexpr int kGroup = 4;         // inputs whose bytes share a word
constexpr int kRowFacts = kPiece; // in the gap behind a row's first piece: -128 times the sums of its digits, 2^-e
constexpr int kRowScale = kRowFacts + kDigits;

static_assert(kRowScale < kPieceStride);

// The first `count` lanes, none below 0 and all from 16 on.
ALWAYS_INLINE __mmask16 first_lanes(int count) {
    if (count >= kWidth) return 0xffff;
    return static_cast<__mmask16>(count <= 0 ? 0 : (1u << count) - 1);
}

// Bits of the largest magnitude; those of NaN are above all others.
ALWAYS_INLINE __m512i larger_bits(__m512i largest, __m512 x) {
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    return _mm512_maskz_max_epu32(0xffff, largest, bits);
}

// (By way of memory, as it is written: GCC 12 warns of what its own casts and reductions leave uninitialised.)
ALWAYS_INLINE std::uint32_t largest_lane(__m512i x) {
    alignas(64) __m256i halves[2];
    _mm512_store_si512(halves, x);
    const __m256i eight = _mm256_max_epu32(halves[0], halves[1]);
    const __m128i four = _mm_max_epu32(_mm256_extracti128_si256(eight, 0), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xb1))));
}

// out[d] = the sum of lanes d, d + 4, d + 8 and d + 12.
ALWAYS_INLINE void add_fourth_lanes(__m512i x, std::int32_t (&out)[4]) {
    alignas(64) __m128i parts[4];
    _mm512_store_si512(parts, x);
    const __m128i four = _mm_add_epi32(_mm_add_epi32(parts[0], parts[1]), _mm_add_epi32(parts[2], parts[3]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), four);
}

float power_of_two(int power) {
    return __builtin_bit_cast(float, (power + 127) << 23);
}

// What brings values to whole numbers of kCount digits, and back; back is NaN where one of the values is not finite.
struct DigitScale {
    float there = 0;
    float back = 0;
};

// 2^power brings the largest to between 2^(8 kCount - 2) and twice as much, but to no more than 127 in each digit: from
// a fraction of almost 0x7f7f... on, the next exponent counts.
template <int kCount> DigitScale scale_to_digits(__m512i largest_bits) {
    static_assert(kCount == 2 || kCount == 3);
    constexpr std::uint32_t kToNext = kCount == 3 ? 0x10101u : 0x101ffu;
    constexpr int kPower = 125 + 8 * kCount;
    const std::uint32_t largest = largest_lane(largest_bits);
    const int exponent = static_cast<int>((largest + kToNext) >> 23);
    const int power = exponent < kPower - 126 ? 126 : kPower - exponent;
    return {power_of_two(power), largest < 0x7f800000u ? power_of_two(-power) : __builtin_nanf("")};
}

DigitScale scale_of_row(const float* x, int n) {
    __m512i largest = _mm512_setzero_si512();
    for (int i = 0; i < n; i += kWidth)
        largest = larger_bits(largest, _mm512_maskz_loadu_ps(first_lanes(n - i), x + i));
    return scale_to_digits<kDigits>(largest);
}

// Inputs [at, at + 16) of a row, of which those below 0 and from k on are 0.
ALWAYS_INLINE __m512 inputs_of(const LinearArgs& a, const float* x, int at) {
    const auto lanes = static_cast<__mmask16>(first_lanes(a.k - at) & ~first_lanes(-at));
    if (!a.order) return _mm512_maskz_loadu_ps(lanes, x + at);
    const __m512i from = _mm512_maskz_loadu_epi32(lanes, a.order + at);
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes, from, x, 4);
}

// The digits of 16 values: for every 4 a word of low digits, one of the next, ..., and words of zeros, 4 in all.
template <int kCount> ALWAYS_INLINE __m512i digits_of(__m512 x, float there) {
    const __m512i bias = _mm512_set1_epi32(kCount == 3 ? 0x00808080 : 0x00008080);
    // Bytes 0 of four words, bytes 1, ...
    const __m512i by_digit = _mm512_set4_epi32(-1, kCount == 3 ? 0x0e0a0602 : -1, 0x0d090501, 0x0c080400);
    const __m512 scaled = x * _mm512_set1_ps(there);
    const __m512i whole = _mm512_maskz_cvtps_epi32(0xffff, scaled); // to nearest
    return _mm512_shuffle_epi8(_mm512_xor_si512(_mm512_add_epi32(whole, bias), bias), by_digit);
}

// Puts down what is known of a row: -128 times the sums of its digits, of which four words each have a part, and its
// scale.
void put_facts(float* facts, __m512i digit_sums, float back) {
    std::int32_t sums[4];
    add_fourth_lanes(digit_sums, sums);
    for (int d = 0; d < kDigits; ++d)
        facts[d] = __builtin_bit_cast(float, 0u - 128u * static_cast<std::uint32_t>(sums[d]));
    facts[kDigits] = back;
}

// Lays out each row's digits where lay_out would put its floats.
void lay_out_digits(const LinearArgs& a) {
    const __m512i ones = _mm512_set1_epi8(1);
    for (int r = 0; r < a.rows; ++r) {
        const float* x = a.x + static_cast<std::size_t>(r) * a.x_stride;
        const DigitScale scale = scale_of_row(x, a.k);
        __m512i digit_sums = _mm512_setzero_si512();
        for (int k = 0; k < a.k; k += kWidth) {
            const __m512i words = digits_of<kDigits>(inputs_of(a, x, k), scale.there);
            digit_sums = _mm512_dpbusd_epi32(digit_sums, ones, words);
            _mm512_storeu_si512(laid_out(a, k / kPiece, r) + k % kPiece, words);
        }
        put_facts(laid_out(a, 0, r) + kRowFacts, digit_sums, scale.back);
    }
}

ALWAYS_INLINE Vec numbers_of(__m512i whole) {
    return __builtin_convertvector(__builtin_bit_cast(IntVec, whole), Vec);
}

// The row's value from the sums of its digits.
ALWAYS_INLINE Vec put_together(Vec low, Vec middle, Vec high, float back) {
    return (high * 65536.0f + (middle * 256.0f + low)) * back;
}

// Rows [first_row, first_row + kRows) of units [unit, unit + kUnits), as linear_block.
template <int kRows, int kUnits> void digits_block(const LinearArgs& a, int unit, int first_row) {
    constexpr int kLookAhead = 32, kPieceLines = kPiece / kGroup;
    const int lines = (a.k + kGroup - 1) / kGroup;
    const std::size_t unit_bytes = static_cast<std::size_t>(lines) * kLineBytes;
    const char* w = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
    const int turn = lines > kLookAhead ? lines - kLookAhead : 0;
    const float* facts = laid_out(a, 0, first_row);
    __m512i sums[kRows][kDigits][kUnits];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int d = 0; d < kDigits; ++d)
#pragma GCC unroll 4
            for (int u = 0; u < kUnits; ++u)
                sums[r][d][u] = _mm512_set1_epi32(__builtin_bit_cast(int, facts[r * kPieceStride + kRowFacts + d]));
    for (int line = 0; line < lines;) {
        const int piece = line / kPieceLines;
        int end = (piece + 1) * kPieceLines < lines ? (piece + 1) * kPieceLines : lines;
        if (line < turn && turn < end) end = turn;
        const float* x = laid_out(a, piece, first_row) + line % kPieceLines * kGroup;
        const char* ahead = w + kLookAhead * kLineBytes + (line < turn ? 0 : (kUnits - 1) * unit_bytes);
        for (; line < end; ++line, x += kGroup, w += kLineBytes, ahead += kLineBytes) {
            __m512i weight[kUnits];
#pragma GCC unroll 4
            for (int u = 0; u < kUnits; ++u) {
                weight[u] = _mm512_loadu_si512(w + static_cast<std::size_t>(u) * unit_bytes);
                __builtin_prefetch(ahead + static_cast<std::size_t>(u) * unit_bytes);
            }
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
                for (int d = 0; d < kDigits; ++d) {
                    const __m512i digit = _mm512_set1_epi32(__builtin_bit_cast(int, x[r * kPieceStride + d]));
#pragma GCC unroll 4
                    for (int u = 0; u < kUnits; ++u)
                        sums[r][d][u] = _mm512_dpbusd_epi32(sums[r][d][u], weight[u], digit);
                }
        }
    }
    Vec whole[kRows][kUnits];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int u = 0; u < kUnits; ++u) {
            // (Handed over without the lambda, the sums are kept in memory throughout, GCC 12.)
            const auto sum = [&](int d) { return numbers_of(sums[r][d][u]); };
            whole[r][u] = put_together(sum(0), sum(1), sum(2), facts[r * kPieceStride + kRowScale]);
        }
    put_outputs<true, kRows, kUnits>(a, unit, first_row, whole);
}

struct Digits {
    template <int kRows, int kUnits> static ALWAYS_INLINE void block(const LinearArgs& a, int unit, int first_row) {
        digits_block<kRows, kUnits>(a, unit, first_row);
    }
};

void linear_int8(const LinearArgs& a) {
    lay_out_digits(a);
    if (a.rows <= 2) return linear_units<Digits, 4, 2>(a);
    if (a.rows == 4 || a.rows == 5) return linear_units<Digits, 2, 5>(a);
    linear_units<Digits, 3, 3>(a);
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
