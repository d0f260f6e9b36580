// Multiplies rows by weights that are float8, or codes that index a table of values. Each output has one scale for each
// group of inputs. Part of linear.inl, which includes it.
//
// The codes of a group become floats in registers; a row's sum over the group is scaled once.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

// Returns kWidth scales or offsets of a group, which begin at `from`: float32 or bfloat16.
ALWAYS_INLINE Vec group_facts(const LinearArgs& a, const char* from, int group, int lane) {
    const std::size_t at = static_cast<std::size_t>(group) * kLanes + static_cast<std::size_t>(lane);
    if (a.groups.scales == ScaleType::float32) return *reinterpret_cast<const Vec*>(from + at * 4);
    return floats_of_bfloat16(from + at * 2);
}

// Returns the place kLookAhead lines ahead in a unit; near the unit's end, in the units after those read with it.
ALWAYS_INLINE const char* ahead_of(const char* line, int lines_left, std::size_t to_next) {
    constexpr int kLookAhead = 32;
    return line + kLookAhead * kLineBytes + (lines_left > kLookAhead ? 0 : to_next);
}

// ---- codes as floats ----

// Each load() returns from a line the codes of kWidth outputs from `lane` on, for one input.
struct Float8Codes {
    static constexpr int kInputs = 4;
    // A byte's bits, shifted, are those of a float16 that is 2^-8 times its value.
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

// Codes of 4 bits that index WeightGroups::values.
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
        const GroupedUnit of(a.groups, a.k);
        const int group_lines = a.groups.size / Codes::kInputs;
        const std::size_t unit_bytes = of.bytes();
        const char* begin = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
        const char* w = begin + of.codes();
        const auto unit_of_vector = [&](int v) { return static_cast<std::size_t>(v * kWidth / kLanes) * unit_bytes; };
        int lines_left = of.code_lines;
        Vec sums[kRows][kVectors] = {};
        for (int group = 0; group < of.groups; ++group) {
            const float* x = laid_out(a, group * a.groups.size / kPiece, first_row) + group * a.groups.size % kPiece;
            Vec parts[kRows][kVectors] = {};
            for (int line = 0; line < group_lines; ++line, --lines_left, w += kLineBytes, x += Codes::kInputs) {
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
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) {
                const Vec scale = group_facts(a, begin + unit_of_vector(v), group, v * kWidth % kLanes);
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r)
                    sums[r][v] += parts[r][v] * scale;
            }
        }
        put_outputs<false, kRows, kVectors>(a, unit, first_row, sums);
    }
};

template <typename Codes> void linear_groups(const LinearArgs& a) {
    lay_out(a);
    linear_blocks<Groups<Codes>>(a);
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
