// Rows times weights whose scales are those of an output and a group of inputs. Part of linear.inl, which includes it.
//
// The codes of a group become floats in registers, and what a row sums up over the group is scaled once. Processors
// that multiply bytes take a row as digits, as linear_int8.inl does, where codes are whole numbers: a group's sums are
// exact, and the rows' values are added up in the order of the groups.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

// kWidth scales or zeros of a group, which begin at `from`.
ALWAYS_INLINE Vec group_facts(const LinearArgs& a, const char* from, int group, int lane) {
    const std::size_t at = static_cast<std::size_t>(group) * kLanes + static_cast<std::size_t>(lane);
    if (a.groups.wide_scales) return *reinterpret_cast<const Vec*>(from + at * 4);
    const UintVec bits = __builtin_convertvector(*reinterpret_cast<const HalfVec*>(from + at * 2), UintVec) << 16;
    return __builtin_bit_cast(Vec, bits);
}

// kLookAhead lines ahead of a unit's line; near the unit's end, of the units behind those that are read with it.
ALWAYS_INLINE const char* ahead_of(const char* line, int lines_left, std::size_t to_next) {
    constexpr int kLookAhead = 32;
    return line + kLookAhead * kLineBytes + (lines_left > kLookAhead ? 0 : to_next);
}

// ---- codes as floats ----

// Of a line: the codes of kWidth outputs from `lane` on for one of its inputs.
struct Int4Codes {
    static constexpr int kInputs = 8;
    static ALWAYS_INLINE Vec load(const char* line, int input, int lane) {
        const UintVec stored = *reinterpret_cast<const UintVec*>(line + lane * 4);
        const IntVec codes = __builtin_bit_cast(IntVec, stored << (28 - 8 * (input % 4) - input / 4 * 4)) >> 28;
        return __builtin_convertvector(codes, Vec);
    }
};

struct Float8Codes {
    static constexpr int kInputs = 4;
    // The bits of a byte, moved, are those of float16 of 2^-8 times as much.
    static ALWAYS_INLINE Vec load(const char* line, int input, int lane) {
        const char* at = line + input * kLanes + lane;
#if defined(__AVX512F__)
        const __m256i bytes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
        const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(bytes, 7), _mm256_set1_epi16(~0x4000));
        return __builtin_bit_cast(Vec, _mm512_maskz_cvtph_ps(0xffff, halves)) * 256.0f;
#elif defined(__F16C__)
        const __m128i bytes = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
        const __m128i halves = _mm_and_si128(_mm_slli_epi16(bytes, 7), _mm_set1_epi16(~0x4000));
        return __builtin_bit_cast(Vec, _mm256_cvtph_ps(halves)) * 256.0f;
#else
        UintVec bytes;
        for (int i = 0; i < kWidth; ++i)
            bytes[i] = static_cast<unsigned char>(at[i]);
        const UintVec bits = (bytes & 0x7fu) << 20 | (bytes & 0x80u) << 24;
        return __builtin_bit_cast(Vec, bits) * 0x1p120f;
#endif
    }
};

// Codes of 4 bits that stand for WeightGroups::values.
struct TableCodes {
    static constexpr int kInputs = 8;
    static ALWAYS_INLINE Vec load(const LinearArgs& a, const char* line, int input, int lane) {
        const UintVec stored = *reinterpret_cast<const UintVec*>(line + lane * 4);
        const UintVec codes = stored >> (8 * (input % 4) + input / 4 * 4) & 15u;
        const float* values = a.groups.values;
#if defined(__AVX512F__)
        const __m512 table = _mm512_loadu_ps(values);
        return __builtin_bit_cast(Vec, _mm512_maskz_permutexvar_ps(0xffff, __builtin_bit_cast(__m512i, codes), table));
#elif defined(__AVX2__)
        const __m256i places = __builtin_bit_cast(__m256i, codes);
        const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), places);
        const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values + 8), places);
        const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(places, 28));
        return __builtin_bit_cast(Vec, _mm256_blendv_ps(low, high, is_high));
#else
        Vec out;
        for (int i = 0; i < kWidth; ++i)
            out[i] = values[codes[i]];
        return out;
#endif
    }
};

template <typename Codes> ALWAYS_INLINE Vec load_codes(const LinearArgs& a, const char* line, int input, int lane) {
    if constexpr (requires { Codes::load(a, line, input, lane); })
        return Codes::load(a, line, input, lane);
    else
        return Codes::load(line, input, lane);
}

template <typename Codes> struct Groups {
    // As linear_block.
    template <int kRows, int kUnits> static void block(const LinearArgs& a, int unit, int first_row) {
        constexpr int kVectors = kUnits * kLanes / kWidth;
        const GroupedUnit of(a.groups, a.k, Codes::kInputs);
        const std::size_t unit_bytes = of.bytes();
        const char* begin = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
        const char* w = begin + of.codes();
        const auto unit_of_vector = [&](int v) { return static_cast<std::size_t>(v * kWidth / kLanes) * unit_bytes; };
        int lines_left = of.groups * of.group_lines;
        Vec sums[kRows][kVectors] = {};
        for (int group = 0; group < of.groups; ++group) {
            const float* group_x =
                laid_out(a, group * a.groups.size / kPiece, first_row) + group * a.groups.size % kPiece;
            const float* x = group_x;
            Vec parts[kRows][kVectors] = {};
            for (int line = 0; line < of.group_lines; ++line, --lines_left, w += kLineBytes, x += Codes::kInputs) {
                const char* ahead = ahead_of(w, lines_left, (kUnits - 1) * unit_bytes);
#pragma GCC unroll 4
                for (int u = 0; u < kUnits; ++u)
                    __builtin_prefetch(ahead + static_cast<std::size_t>(u) * unit_bytes);
#pragma GCC unroll 8
                for (int input = 0; input < Codes::kInputs; ++input) {
                    Vec weight[kVectors];
#pragma GCC unroll 8
                    for (int v = 0; v < kVectors; ++v)
                        weight[v] = load_codes<Codes>(a, w + unit_of_vector(v), input, v * kWidth % kLanes);
#pragma GCC unroll 16
                    for (int r = 0; r < kRows; ++r) {
                        const Vec broadcast = splat(x[r * kPieceStride + input]);
#pragma GCC unroll 8
                        for (int v = 0; v < kVectors; ++v)
                            parts[r][v] += broadcast * weight[v];
                    }
                }
            }
            float x_sums[kRows] = {};
            for (int r = 0; r < kRows && a.groups.has_zeros; ++r)
                for (int i = 0; i < a.groups.size; ++i)
                    x_sums[r] += group_x[r * kPieceStride + i];
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
                const char* facts = begin + unit_of_vector(v);
                const Vec scale = group_facts(a, facts, group, v * kWidth % kLanes);
                Vec zero = {};
                if (a.groups.has_zeros) zero = group_facts(a, facts + of.zeros(), group, v * kWidth % kLanes);
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r)
                    sums[r][v] += (parts[r][v] - zero * x_sums[r]) * scale;
            }
        }
        put_outputs<false, kRows, kVectors>(a, unit, first_row, sums);
    }
};

template <typename Codes> void linear_groups(const LinearArgs& a) {
    lay_out(a);
    linear_blocks<Groups<Codes>>(a);
}

void linear_float8(const LinearArgs& a) {
    linear_groups<Float8Codes>(a);
}

#if defined(__AVX512VNNI__)

// ---- codes as bytes ----

// Words 3, 7 and 11 of a group's digits, which are free: -128 times their sums, for what is added to codes so that they
// have no sign; word 15: what the row sums up over the group, times Bytes::kTimes.
constexpr int kGroupFacts = 3, kGroupSum = 15;

// The codes of a line, times kTimes: of inputs 0 to 3, and of 4 to 7; with their sign, or 128 more.
struct Int4Bytes {
    static constexpr int kInputs = 8, kWords = 2;
    static constexpr float kTimes = 16;
    template <bool kSigned> static ALWAYS_INLINE void load(const char* line, __m512i (&out)[kWords]) {
        const __m512i stored = _mm512_loadu_si512(line), mask = _mm512_set1_epi8(static_cast<char>(0xf0));
        const __m512i offset = _mm512_set1_epi8(static_cast<char>(kSigned ? 0 : 0x80));
        constexpr int kAndXor = 0x6a; // (a & b) ^ c
        const __m512i low = _mm512_maskz_slli_epi16(~__mmask32{0}, stored, 4);
        out[0] = _mm512_ternarylogic_epi32(low, mask, offset, kAndXor);
        out[1] = _mm512_ternarylogic_epi32(stored, mask, offset, kAndXor);
    }
};

struct Int8Bytes { // stored as 128 more
    static constexpr int kInputs = 4, kWords = 1;
    static constexpr float kTimes = 1;
    template <bool kSigned> static ALWAYS_INLINE void load(const char* line, __m512i (&out)[kWords]) {
        out[0] = _mm512_loadu_si512(line);
        if constexpr (kSigned) out[0] = _mm512_xor_si512(out[0], _mm512_set1_epi8(static_cast<char>(0x80)));
    }
};

// The sums of a group's digits, of which each of four words has a part.
struct DigitSums {
    std::int32_t of[kDigits];
    explicit DigitSums(__m512i parts) {
        std::int32_t words[kWidth];
        _mm512_storeu_si512(words, parts);
        for (int d = 0; d < kDigits; ++d)
            of[d] = words[d] + words[d + 4] + words[d + 8] + words[d + 12];
    }
    float value() const {
        return static_cast<float>(of[2]) * 65536.0f + (static_cast<float>(of[1]) * 256.0f + static_cast<float>(of[0]));
    }
};

// Digits as lay_out_digits has them.
void lay_out_group_digits(const LinearArgs& a, int end, float times) {
    const __m512i ones = _mm512_set1_epi8(1);
    for (int r = 0; r < a.rows; ++r) {
        const float* x = a.x + static_cast<std::size_t>(r) * a.x_stride;
        const Int8Scale scale = scale_of_row(x, a.k);
        for (int group = 0; group < end; group += a.groups.size) {
            float* to = laid_out(a, group / kPiece, r) + group % kPiece;
            __m512i parts = _mm512_setzero_si512();
            for (int k = 0; k < a.groups.size; k += kWidth) {
                const __m512i words = digits_of(inputs_of(a, x, group + k - a.groups.lead), scale.there);
                parts = _mm512_dpbusd_epi32(parts, ones, words);
                _mm512_storeu_si512(to + k, words);
            }
            const DigitSums sums(parts);
            for (int d = 0; d < kDigits; ++d)
                to[4 * d + kGroupFacts] = __builtin_bit_cast(float, -128 * sums.of[d]);
            to[kGroupSum] = sums.value() * times;
        }
        laid_out(a, 0, r)[kRowScale] = scale.back / times;
    }
}

// A row's value over a group, but for its powers of two, from the sums of its digits.
ALWAYS_INLINE Vec group_value(__m512i low, __m512i middle, __m512i high) {
    return numbers_of(high) * 65536.0f + (numbers_of(middle) * 256.0f + numbers_of(low));
}

// What a group adds to the row.
ALWAYS_INLINE void add_group(Vec& sum, Vec value, Vec zero, float x_sum, Vec scale) {
    sum += (value - zero * x_sum) * scale;
}

template <typename Bytes> struct DigitGroups {
    // As linear_block.
    template <int kRows, int kUnits> static void block(const LinearArgs& a, int unit, int first_row) {
        const GroupedUnit of(a.groups, a.k, Bytes::kInputs);
        const std::size_t unit_bytes = of.bytes();
        const char* begin = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
        const char* w = begin + of.codes();
        int lines_left = of.groups * of.group_lines;
        Vec sums[kRows][kUnits] = {};
        for (int group = 0; group < of.groups; ++group) {
            const float* group_x =
                laid_out(a, group * a.groups.size / kPiece, first_row) + group * a.groups.size % kPiece;
            const float* x = group_x;
            __m512i parts[kRows][kDigits][kUnits];
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
                for (int d = 0; d < kDigits; ++d)
#pragma GCC unroll 4
                    for (int u = 0; u < kUnits; ++u)
                        parts[r][d][u] =
                            _mm512_set1_epi32(__builtin_bit_cast(int, x[r * kPieceStride + 4 * d + kGroupFacts]));
            for (int line = 0; line < of.group_lines; ++line, --lines_left, w += kLineBytes, x += Bytes::kInputs) {
                const char* ahead = ahead_of(w, lines_left, (kUnits - 1) * unit_bytes);
                __m512i codes[kUnits][Bytes::kWords];
#pragma GCC unroll 4
                for (int u = 0; u < kUnits; ++u) {
                    __builtin_prefetch(ahead + static_cast<std::size_t>(u) * unit_bytes);
                    Bytes::template load<false>(w + static_cast<std::size_t>(u) * unit_bytes, codes[u]);
                }
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
                    for (int d = 0; d < kDigits; ++d)
#pragma GCC unroll 2
                        for (int word = 0; word < Bytes::kWords; ++word) {
                            const __m512i digit =
                                _mm512_set1_epi32(__builtin_bit_cast(int, x[r * kPieceStride + 4 * word + d]));
#pragma GCC unroll 4
                            for (int u = 0; u < kUnits; ++u)
                                parts[r][d][u] = _mm512_dpbusd_epi32(parts[r][d][u], codes[u][word], digit);
                        }
            }
#pragma GCC unroll 4
            for (int u = 0; u < kUnits; ++u) {
                const char* facts = begin + static_cast<std::size_t>(u) * unit_bytes;
                const Vec scale = group_facts(a, facts, group, 0);
                Vec zero = {};
                if (a.groups.has_zeros) zero = group_facts(a, facts + of.zeros(), group, 0);
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r)
                    add_group(sums[r][u], group_value(parts[r][0][u], parts[r][1][u], parts[r][2][u]), zero,
                              group_x[r * kPieceStride + kGroupSum], scale);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
            for (int u = 0; u < kUnits; ++u)
                sums[r][u] = rounded(sums[r][u] * laid_out(a, 0, first_row)[r * kPieceStride + kRowScale]);
        put_outputs<false, kRows, kUnits>(a, unit, first_row, sums);
    }
};

template <typename Bytes> void linear_digit_groups(const LinearArgs& a) {
    lay_out_group_digits(a, GroupedUnit(a.groups, a.k, Bytes::kInputs).groups * a.groups.size, Bytes::kTimes);
    if (a.rows <= 2) return linear_units<DigitGroups<Bytes>, 4, 2>(a);
    if (a.rows == 4) return linear_units<DigitGroups<Bytes>, 2, 4>(a);
    linear_units<DigitGroups<Bytes>, 2, 3>(a);
}

void linear_int4(const LinearArgs& a) {
    linear_digit_groups<Int4Bytes>(a);
}

void linear_int8_groups(const LinearArgs& a) {
    linear_digit_groups<Int8Bytes>(a);
}

#else

void linear_int4(const LinearArgs& a) {
    linear_groups<Int4Codes>(a);
}

void linear_int8_groups(const LinearArgs& a) {
    linear_groups<Int8>(a);
}

#endif

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
