// Rows times weights whose scales are those of an output and a group of inputs. Part of linear.inl, which includes it.
//
// The codes of a group become floats in registers, and what a row sums up over the group is scaled once. Processors
// that multiply bytes take a row as digits, as linear_int8.inl does, where codes are whole numbers, but group by group:
// a group's sums are exact, and what they stand for is added up in the order of the groups.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

// kWidth scales or offsets of a group, which begin at `from`.
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

ALWAYS_INLINE void take_offset(Vec& sum, Vec offset, float x_sum) {
    sum -= offset * x_sum;
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
            for (int r = 0; r < kRows && a.groups.has_offsets; ++r)
                for (int i = 0; i < a.groups.size; ++i)
                    x_sums[r] += group_x[r * kPieceStride + i];
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
                const char* facts = begin + unit_of_vector(v);
                const Vec scale = group_facts(a, facts, group, v * kWidth % kLanes);
                Vec offset = {};
                if (a.groups.has_offsets) offset = group_facts(a, facts + of.offsets(), group, v * kWidth % kLanes);
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r) {
                    sums[r][v] += parts[r][v] * scale;
                    if (a.groups.has_offsets) take_offset(sums[r][v], offset, x_sums[r]);
                }
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

// Inputs of a group are taken as whole numbers of kCount digits times 2^-e, which is that of the row's group.

// What the digits of a row's group sum up to.
template <int kCount> struct DigitSums {
    std::int32_t of[4] = {};
    float value() const {
        const auto low = static_cast<float>(of[1] * 256 + of[0]);
        return kCount == 3 ? static_cast<float>(of[kCount - 1]) * 65536.0f + low : low;
    }
};

// Calls put(input, digits of 16 inputs from there on) for row r, and done(group, sums of its digits, 2^-e) behind each
// of `groups` groups.
template <int kCount, typename Put, typename Done>
ALWAYS_INLINE void take_group_digits(const LinearArgs& a, int r, int groups, Put put, Done done) {
    const float* x = a.x + static_cast<std::size_t>(r) * a.x_stride;
    const __m512i ones = _mm512_set1_epi8(1);
    for (int group = 0; group < groups; ++group) {
        const int begin = group * a.groups.size;
        __m512 values[kPiece / kWidth];
        __m512i largest = _mm512_setzero_si512(), parts = _mm512_setzero_si512();
        for (int k = 0; k < a.groups.size; k += kWidth) {
            values[k / kWidth] = inputs_of(a, x, begin + k - a.groups.lead);
            largest = larger_bits(largest, values[k / kWidth]);
        }
        const DigitScale scale = scale_to_digits<kCount>(largest);
        for (int k = 0; k < a.groups.size; k += kWidth) {
            const __m512i words = digits_of<kCount>(values[k / kWidth], scale.there);
            parts = _mm512_dpbusd_epi32(parts, ones, words);
            put(begin + k, words);
        }
        DigitSums<kCount> sums;
        add_fourth_lanes(parts, sums.of);
        done(group, sums, scale.back);
    }
}

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

// What a group adds to a row's sum, from the sums of its digits. Every product but the last is rounded once, with a sum
// behind it, whatever calls this.
template <int kCount, typename OfDigit> ALWAYS_INLINE Vec group_value(OfDigit of_digit) {
    const Vec low = of_digit(1) * 256.0f + of_digit(0);
    if constexpr (kCount == 3)
        return of_digit(2) * 65536.0f + low;
    else
        return low;
}
ALWAYS_INLINE void add_group(Vec& sum, Vec value, Vec scale, float x_scale) {
    sum += value * (scale * x_scale);
}

// Words of a group's digits that are free: one a digit for -128 times its sum, which takes off what is added to codes
// so that they have no sign, and one for 2^-e / kTimes.
constexpr int offset_of_digit(int d) {
    return 4 * d + 3;
}
constexpr int kGroupScale = offset_of_digit(kDigits);

template <int kCount> void lay_out_group_digits(const LinearArgs& a, int groups, float times) {
    for (int r = 0; r < a.rows; ++r)
        take_group_digits<kCount>(
            a, r, groups,
            [&](int k, __m512i words) { _mm512_storeu_si512(laid_out(a, k / kPiece, r) + k % kPiece, words); },
            [&](int group, const DigitSums<kCount>& sums, float back) {
                float* facts = laid_out(a, group * a.groups.size / kPiece, r) + group * a.groups.size % kPiece;
                for (int d = 0; d < kCount; ++d)
                    facts[offset_of_digit(d)] = __builtin_bit_cast(float, -128 * sums.of[d]);
                facts[kGroupScale] = back / times;
            });
}

// What a row sums up over a group that is laid out.
template <int kCount> float sum_of_group(const float* facts) {
    DigitSums<kCount> sums;
    for (int d = 0; d < kCount; ++d)
        sums.of[d] = __builtin_bit_cast(int, facts[offset_of_digit(d)]) / -128;
    return sums.value();
}

template <typename Bytes, int kCount> struct DigitGroups {
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
            __m512i parts[kRows][kCount][kUnits];
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
                for (int d = 0; d < kCount; ++d)
#pragma GCC unroll 4
                    for (int u = 0; u < kUnits; ++u)
                        parts[r][d][u] =
                            _mm512_set1_epi32(__builtin_bit_cast(int, x[r * kPieceStride + offset_of_digit(d)]));
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
                    for (int d = 0; d < kCount; ++d)
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
                Vec offset = {};
                if (a.groups.has_offsets) offset = group_facts(a, facts + of.offsets(), group, 0);
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r) {
                    const float* row = group_x + r * kPieceStride;
                    const auto of_digit = [&](int d) { return numbers_of(parts[r][d][u]); };
                    add_group(sums[r][u], group_value<kCount>(of_digit), scale, row[kGroupScale]);
                    if (a.groups.has_offsets)
                        take_offset(sums[r][u], offset, sum_of_group<kCount>(row) * (Bytes::kTimes * row[kGroupScale]));
                }
            }
        }
        put_outputs<false, kRows, kUnits>(a, unit, first_row, sums);
    }
};

template <typename Bytes, int kCount> void linear_digit_groups(const LinearArgs& a) {
    using Block = DigitGroups<Bytes, kCount>;
    lay_out_group_digits<kCount>(a, GroupedUnit(a.groups, a.k, Bytes::kInputs).groups, Bytes::kTimes);
    if (a.rows <= 2) return linear_units < Block, kCount == 2 ? 4 : 3, 2 > (a);
    linear_units<Block, 2, kCount == 2 ? 4 : 3>(a);
}

void linear_int4(const LinearArgs& a) {
    a.groups.digits == 2 ? linear_digit_groups<Int4Bytes, 2>(a) : linear_digit_groups<Int4Bytes, 3>(a);
}

void linear_int8_groups(const LinearArgs& a) {
    linear_digit_groups<Int8Bytes, 3>(a);
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
