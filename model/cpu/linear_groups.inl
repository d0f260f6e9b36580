// Rows times 4-bit weights, whose scales are those of an output and a group of inputs. Part of linear.inl, which
// includes it.
//
// The codes of a group become floats in registers, and what a row sums up over the group is scaled once. Processors
// that multiply bytes take a row as digits, as with 8-bit weights (linear_int8.inl): a group's sums are exact, and the
// rows' values are added up in the order of the groups.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

constexpr GroupedUnit unit_of(const LinearArgs& a) {
    return {a.groups, a.k, 8};
}

// kWidth scales of a group.
ALWAYS_INLINE Vec group_scales(const char* unit, int group, int lane) {
    const char* at = unit + (static_cast<std::size_t>(group) * kLanes + static_cast<std::size_t>(lane)) * 2;
    const UintVec bits = __builtin_convertvector(*reinterpret_cast<const HalfVec*>(at), UintVec) << 16;
    return __builtin_bit_cast(Vec, bits);
}

// kLookAhead lines ahead of a unit's line; near the unit's end, of the units behind those that are read with it.
ALWAYS_INLINE const char* ahead_of(const char* line, int lines_left, std::size_t to_next) {
    constexpr int kLookAhead = 32;
    return line + kLookAhead * kLineBytes + (lines_left > kLookAhead ? 0 : to_next);
}

#if defined(__AVX512VNNI__)

// Bytes hold 16 times a code, with its sign for tiles, or 128 more; a row's scale takes the 16 back.
constexpr int kGroupFacts = 3; // words 3, 7 and 11 of a group's digits, which are free: -128 times their sums

ALWAYS_INLINE __mmask16 lanes_between(int begin, int end) {
    return static_cast<__mmask16>(first_lanes(end) & ~first_lanes(begin));
}

// Digits as lay_out_digits has them.
void lay_out_group_digits(const LinearArgs& a) {
    const __m512i ones = _mm512_set1_epi8(1);
    const int lead = a.groups.lead, end = unit_of(a).groups * a.groups.size;
    for (int r = 0; r < a.rows; ++r) {
        const float* x = a.x + static_cast<std::size_t>(r) * a.x_stride;
        const Int8Scale scale = scale_of_row(x, a.k);
        for (int group = 0; group < end; group += a.groups.size) {
            float* to = laid_out(a, group / kPiece, r) + group % kPiece;
            __m512i digit_sums = _mm512_setzero_si512();
            for (int k = 0; k < a.groups.size; k += kWidth) {
                const int at = group + k - lead; // of x
                const __m512i words = digits_of(x + at, lanes_between(-at, a.k - at), scale.there);
                digit_sums = _mm512_dpbusd_epi32(digit_sums, ones, words);
                _mm512_storeu_si512(to + k, words);
            }
            std::int32_t sums[kWidth];
            _mm512_storeu_si512(sums, digit_sums);
            for (int d = 0; d < kDigits; ++d)
                to[4 * d + kGroupFacts] =
                    __builtin_bit_cast(float, -128 * (sums[d] + sums[d + 4] + sums[d + 8] + sums[d + 12]));
        }
        laid_out(a, 0, r)[kRowScale] = scale.back / 16;
    }
}

// A row's value over a group, but for its powers of two, from the sums of its digits.
ALWAYS_INLINE Vec group_value(__m512i low, __m512i middle, __m512i high) {
    return numbers_of(high) * 65536.0f + (numbers_of(middle) * 256.0f + numbers_of(low));
}

// The codes of a line: of inputs 0 to 3, and of 4 to 7.
struct CodeBytes {
    __m512i low, high;
};
template <bool kSigned> ALWAYS_INLINE CodeBytes codes_of(const char* line) {
    const __m512i stored = _mm512_loadu_si512(line), mask = _mm512_set1_epi8(static_cast<char>(0xf0));
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(kSigned ? 0 : 0x80));
    constexpr int kAndXor = 0x6a; // (a & b) ^ c
    const auto byte = [&](__m512i halves) { return _mm512_ternarylogic_epi32(halves, mask, offset, kAndXor); };
    return {byte(_mm512_maskz_slli_epi16(~__mmask32{0}, stored, 4)), byte(stored)};
}

// As linear_block.
template <int kRows, int kUnits> void digit_groups_block(const LinearArgs& a, int unit, int first_row) {
    const GroupedUnit of = unit_of(a);
    const std::size_t unit_bytes = of.bytes();
    const char* begin = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
    const char* w = begin + of.scale_bytes();
    int lines_left = of.groups * of.group_lines;
    Vec sums[kRows][kUnits] = {};
    for (int group = 0; group < of.groups; ++group) {
        const float* x = laid_out(a, group * a.groups.size / kPiece, first_row) + group * a.groups.size % kPiece;
        __m512i parts[kRows][kDigits][kUnits];
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
            for (int d = 0; d < kDigits; ++d)
#pragma GCC unroll 4
                for (int u = 0; u < kUnits; ++u)
                    parts[r][d][u] =
                        _mm512_set1_epi32(__builtin_bit_cast(int, x[r * kPieceStride + 4 * d + kGroupFacts]));
        for (int line = 0; line < of.group_lines; ++line, --lines_left, w += kLineBytes, x += 8) {
            const char* ahead = ahead_of(w, lines_left, (kUnits - 1) * unit_bytes);
            CodeBytes codes[kUnits];
#pragma GCC unroll 4
            for (int u = 0; u < kUnits; ++u) {
                __builtin_prefetch(ahead + static_cast<std::size_t>(u) * unit_bytes);
                codes[u] = codes_of<false>(w + static_cast<std::size_t>(u) * unit_bytes);
            }
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
                for (int d = 0; d < kDigits; ++d) {
                    const __m512i low = _mm512_set1_epi32(__builtin_bit_cast(int, x[r * kPieceStride + d]));
                    const __m512i high = _mm512_set1_epi32(__builtin_bit_cast(int, x[r * kPieceStride + d + 4]));
#pragma GCC unroll 4
                    for (int u = 0; u < kUnits; ++u) {
                        parts[r][d][u] = _mm512_dpbusd_epi32(parts[r][d][u], codes[u].low, low);
                        parts[r][d][u] = _mm512_dpbusd_epi32(parts[r][d][u], codes[u].high, high);
                    }
                }
        }
#pragma GCC unroll 4
        for (int u = 0; u < kUnits; ++u) {
            const Vec scale = group_scales(begin + static_cast<std::size_t>(u) * unit_bytes, group, 0);
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r)
                sums[r][u] += group_value(parts[r][0][u], parts[r][1][u], parts[r][2][u]) * scale;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int u = 0; u < kUnits; ++u)
            sums[r][u] = rounded(sums[r][u] * laid_out(a, 0, first_row)[r * kPieceStride + kRowScale]);
    put_outputs<false, kRows, kUnits>(a, unit, first_row, sums);
}

struct DigitGroups {
    template <int kRows, int kUnits> static ALWAYS_INLINE void block(const LinearArgs& a, int unit, int first_row) {
        digit_groups_block<kRows, kUnits>(a, unit, first_row);
    }
};

void linear_int4(const LinearArgs& a) {
    lay_out_group_digits(a);
    if (a.rows <= 2) return linear_units<DigitGroups, 4, 2>(a);
    if (a.rows == 4) return linear_units<DigitGroups, 2, 4>(a);
    linear_units<DigitGroups, 2, 3>(a);
}

#else

// Of a line: the weights of kWidth outputs from `lane` on for one of its 8 inputs.
ALWAYS_INLINE Vec code_values(const char* line, int input, int lane) {
    const UintVec stored = *reinterpret_cast<const UintVec*>(line + lane * 4);
    const IntVec codes = __builtin_bit_cast(IntVec, stored << (28 - 8 * (input % 4) - input / 4 * 4)) >> 28;
    return __builtin_convertvector(codes, Vec);
}

struct Groups {
    // As linear_block.
    template <int kRows, int kUnits> static void block(const LinearArgs& a, int unit, int first_row) {
        constexpr int kVectors = kUnits * kLanes / kWidth;
        const GroupedUnit of = unit_of(a);
        const std::size_t unit_bytes = of.bytes();
        const char* begin = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
        const char* w = begin + of.scale_bytes();
        const auto unit_of_vector = [&](int v) { return static_cast<std::size_t>(v * kWidth / kLanes) * unit_bytes; };
        int lines_left = of.groups * of.group_lines;
        Vec sums[kRows][kVectors] = {};
        for (int group = 0; group < of.groups; ++group) {
            const float* x = laid_out(a, group * a.groups.size / kPiece, first_row) + group * a.groups.size % kPiece;
            Vec parts[kRows][kVectors] = {};
            for (int line = 0; line < of.group_lines; ++line, --lines_left, w += kLineBytes, x += 8) {
                const char* ahead = ahead_of(w, lines_left, (kUnits - 1) * unit_bytes);
#pragma GCC unroll 4
                for (int u = 0; u < kUnits; ++u)
                    __builtin_prefetch(ahead + static_cast<std::size_t>(u) * unit_bytes);
#pragma GCC unroll 8
                for (int input = 0; input < 8; ++input) {
                    Vec weight[kVectors];
#pragma GCC unroll 8
                    for (int v = 0; v < kVectors; ++v)
                        weight[v] = code_values(w + unit_of_vector(v), input, v * kWidth % kLanes);
#pragma GCC unroll 16
                    for (int r = 0; r < kRows; ++r) {
                        const Vec broadcast = splat(x[r * kPieceStride + input]);
#pragma GCC unroll 8
                        for (int v = 0; v < kVectors; ++v)
                            parts[r][v] += broadcast * weight[v];
                    }
                }
            }
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
                const Vec scale = group_scales(begin + unit_of_vector(v), group, v * kWidth % kLanes);
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r)
                    sums[r][v] += parts[r][v] * scale;
            }
        }
        put_outputs<false, kRows, kVectors>(a, unit, first_row, sums);
    }
};

void linear_int4(const LinearArgs& a) {
    lay_out(a);
    linear_blocks<Groups>(a);
}

#endif

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
