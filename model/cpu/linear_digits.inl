// Rows times weights of whole numbers, in whole numbers. Part of linear.inl, which includes it.
//
// A row is cut into blocks of 32 inputs. In a block x = scale * (65536 h + 256 m + l), where h, m and l are signed
// bytes: the digits, of which LinearArgs::digits are taken. The scale is the largest magnitude of the block over the
// largest whole number of so many digits. Sums of codes times digits over a block are exact, so every instruction set
// gives the same bits: what follows is one sequence of roundings, spelled out.
//
// The codes of a block become bytes without a sign once, for all rows; what they are more than the weights' own codes
// is taken off by where the sums start.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

constexpr int kBlock = 32; // inputs
constexpr int kBlockLines = kBlock / 4;
constexpr int kHalf = kBlock / 2; // what groups of 16 make of a block

typedef unsigned char Bytes __attribute__((vector_size(4 * kWidth), may_alias)); // kWidth outputs of a line
constexpr int kVectors = kLanes / kWidth;
constexpr int kLinesAhead = 64; // that are asked for

// ---- rows as digits ----

template <int kDigits> struct BlockFacts {
    float scale;
    float sums[2];                   // of the inputs of either half
    std::int32_t starts[kDigits][2]; // what sums of products begin with
};

// The rows of a call: [blocks][rows][digit][32] and [blocks][rows].
template <int kDigits> struct RowDigits {
    int rows, blocks;
    signed char* digits;
    BlockFacts<kDigits>* facts;

    RowDigits(const LinearArgs& a, int n_blocks)
        : rows(a.rows), blocks(n_blocks), digits(reinterpret_cast<signed char*>(a.scratch)),
          facts(reinterpret_cast<BlockFacts<kDigits>*>(digits + at(n_blocks, 0) * kDigits * kBlock)) {}
    std::size_t at(int block, int row) const {
        return static_cast<std::size_t>(block) * static_cast<std::size_t>(rows) + static_cast<std::size_t>(row);
    }
    signed char* digits_at(int block, int row) const { return digits + at(block, row) * kDigits * kBlock; }
};
// As many bytes of a block as linear_scratch_floats counts for one.
static_assert(3 * kBlock + sizeof(BlockFacts<3>) <= sizeof(float) * kPieceStride / (kPiece / kBlock));

ALWAYS_INLINE IntVec to_nearest(Vec x) {
#if defined(__AVX512F__)
    return __builtin_bit_cast(IntVec, _mm512_maskz_cvtps_epi32(0xffff, __builtin_bit_cast(__m512, x)));
#elif defined(__AVX2__)
    return __builtin_bit_cast(IntVec, _mm256_cvtps_epi32(__builtin_bit_cast(__m256, x)));
#else
    IntVec whole;
    for (int i = 0; i < kWidth; ++i)
        whole[i] = static_cast<std::int32_t>(__builtin_rintf(x[i]));
    return whole;
#endif
}

// Inputs [at, at + 32) of a row, of which those below 0 and from k on are 0.
void take_block(const LinearArgs& a, const float* x, int at, float* out) {
    const int begin = at < 0 ? -at : 0, end = a.k - at < kBlock ? a.k - at : kBlock;
    if (begin > 0 || end < kBlock) __builtin_memset(out, 0, kBlock * sizeof(float));
    if (a.order)
        for (int i = begin; i < end; ++i)
            out[i] = x[a.order[at + i]];
    else if (begin < end)
        __builtin_memcpy(out + begin, x + at + begin, static_cast<std::size_t>(end - begin) * sizeof(float));
}

// Blocks with a value that is no number have no number for a scale. Those without a value above kTiny are 0.
template <int kDigits> void take_digits(const float* x, int less, signed char* digits, BlockFacts<kDigits>& facts) {
    constexpr float kMost = kDigits == 1 ? 127 : kDigits == 2 ? 0x7f7f : 0x7f7f00; // with room for a rounding
    constexpr std::uint32_t kBias = kDigits == 1 ? 0x80 : kDigits == 2 ? 0x8080 : 0x808080;
    constexpr float kTiny = 1e-31f; // kMost / kTiny is a float
    std::uint32_t bits = 0;
    for (int i = 0; i < kBlock; ++i) {
        const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, x[i]) & 0x7fffffffu;
        bits = magnitude > bits ? magnitude : bits;
    }
    const auto largest = __builtin_bit_cast(float, bits);
    const bool is_number = bits < 0x7f800000u;
    const float inverse = is_number && largest > kTiny ? kMost / largest : 0;
    facts.scale = !is_number ? __builtin_nanf("") : largest > kTiny ? largest / kMost : 0;
    std::uint32_t whole[kBlock];
    for (int i = 0; i < kBlock; i += kWidth) {
        const Vec scaled = rounded(*reinterpret_cast<const Vec*>(x + i) * inverse);
        *reinterpret_cast<IntVec*>(whole + i) = is_number ? to_nearest(scaled) : IntVec{};
    }
    for (int half = 0; half < 2; ++half) {
        std::int32_t sum = 0;
        for (int i = 0; i < kHalf; ++i)
            sum += static_cast<std::int32_t>(whole[half * kHalf + i]);
        facts.sums[half] = facts.scale * static_cast<float>(sum);
    }
    for (int d = 0; d < kDigits; ++d) {
        for (int i = 0; i < kBlock; ++i)
            digits[d * kBlock + i] = static_cast<signed char>((((whole[i] + kBias) ^ kBias) >> 8 * d) & 0xffu);
        for (int half = 0; half < 2; ++half) {
            std::int32_t sum = 0;
            for (int i = 0; i < kHalf; ++i)
                sum += digits[d * kBlock + half * kHalf + i];
            facts.starts[d][half] = -less * sum;
        }
    }
}

template <int kDigits> void lay_out_digits(const LinearArgs& a, const RowDigits<kDigits>& to, int less) {
    for (int block = 0; block < to.blocks; ++block)
        for (int r = 0; r < a.rows; ++r) {
            alignas(64) float x[kBlock];
            take_block(a, a.x + static_cast<std::size_t>(r) * a.x_stride, block * kBlock - a.groups.lead, x);
            take_digits<kDigits>(x, less, to.digits_at(block, r), to.facts[to.at(block, r)]);
        }
}

// ---- codes as bytes ----

ALWAYS_INLINE Bytes bytes_of(const char* lines, int line, int vector) {
    return reinterpret_cast<const Bytes*>(lines + line * static_cast<int>(kLineBytes))[vector];
}

// A block's codes of the kWidth outputs of a vector as bytes without a sign: out[i] holds inputs 4 i to 4 i + 3.
struct Int4Codes {
    static constexpr int kInputs = 8, kLess = 8, kMost = 15;
    static ALWAYS_INLINE void load(const char* lines, int vector, Bytes (&out)[kBlockLines]) {
#pragma GCC unroll 4
        for (int i = 0; i < kBlockLines / 2; ++i) {
            const Bytes stored = bytes_of(lines, i, vector);
            out[2 * i] = (stored & 15) ^ 8;
            out[2 * i + 1] = (stored >> 4) ^ 8;
        }
    }
};

struct Int8Codes {
    static constexpr int kInputs = 4, kLess = 128, kMost = 255;
    static ALWAYS_INLINE void load(const char* lines, int vector, Bytes (&out)[kBlockLines]) {
#pragma GCC unroll 8
        for (int i = 0; i < kBlockLines; ++i)
            out[i] = bytes_of(lines, i, vector);
    }
};

// ---- products ----

ALWAYS_INLINE Vec fused(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
    return __builtin_bit_cast(Vec, _mm512_fmadd_ps(__builtin_bit_cast(__m512, a), __builtin_bit_cast(__m512, b),
                                                   __builtin_bit_cast(__m512, c)));
#elif defined(__AVX2__)
    return __builtin_bit_cast(Vec, _mm256_fmadd_ps(__builtin_bit_cast(__m256, a), __builtin_bit_cast(__m256, b),
                                                   __builtin_bit_cast(__m256, c)));
#else
    Vec out;
    for (int i = 0; i < kWidth; ++i)
        out[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return out;
#endif
}

#if defined(__AVX512F__)
typedef __m512i Whole;
ALWAYS_INLINE Whole all_words(std::int32_t word) {
    return _mm512_set1_epi32(word);
}
ALWAYS_INLINE Whole pairs(Whole codes, Whole digits) { // saturates
    return _mm512_maddubs_epi16(codes, digits);
}
ALWAYS_INLINE Whole add_pairs(Whole a, Whole b) {
    return _mm512_add_epi16(a, b);
}
ALWAYS_INLINE Whole shifted_down(Whole codes) {
    return _mm512_srli_epi16(codes, 4);
}
ALWAYS_INLINE Whole add_widened(Whole sum, Whole pair_sums, short times = 1) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pair_sums, _mm512_set1_epi16(times)));
}
#elif defined(__AVX2__)
typedef __m256i Whole;
ALWAYS_INLINE Whole all_words(std::int32_t word) {
    return _mm256_set1_epi32(word);
}
ALWAYS_INLINE Whole pairs(Whole codes, Whole digits) { // saturates
    return _mm256_maddubs_epi16(codes, digits);
}
ALWAYS_INLINE Whole add_pairs(Whole a, Whole b) {
    return _mm256_add_epi16(a, b);
}
ALWAYS_INLINE Whole shifted_down(Whole codes) {
    return _mm256_srli_epi16(codes, 4);
}
ALWAYS_INLINE Whole add_widened(Whole sum, Whole pair_sums, short times = 1) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pair_sums, _mm256_set1_epi16(times)));
}
#endif

// sum += codes of kWords words times the digits at x.
template <int kMost, int kWords>
ALWAYS_INLINE IntVec add_products(IntVec sum, const Bytes* codes, const signed char* x) {
#if defined(__AVX512VNNI__)
    Whole total = __builtin_bit_cast(Whole, sum);
#pragma GCC unroll 8
    for (int i = 0; i < kWords; ++i) {
        std::int32_t word;
        __builtin_memcpy(&word, x + 4 * i, sizeof word);
        total = _mm512_dpbusd_epi32(total, __builtin_bit_cast(Whole, codes[i]), all_words(word));
    }
    return __builtin_bit_cast(IntVec, total);
#elif defined(__AVX2__)
    // Sums of pairs have 16 bits: so many of them fit one word.
    constexpr int kTogether = 32767 / (kMost * 2 * 127);
    Whole total = __builtin_bit_cast(Whole, sum), some = {}, high = {};
#pragma GCC unroll 8
    for (int i = 0; i < kWords; ++i) {
        std::int32_t word;
        __builtin_memcpy(&word, x + 4 * i, sizeof word);
        const Whole digits = all_words(word);
        if constexpr (kTogether == 0) { // in halves of 4 bits, whose sums of all words fit
            const Whole codes_of_word = __builtin_bit_cast(Whole, codes[i]), low_bits = all_words(0x0f0f0f0f);
            some = add_pairs(some, pairs(codes_of_word & low_bits, digits));
            high = add_pairs(high, pairs(shifted_down(codes_of_word) & low_bits, digits));
        } else {
            const Whole products = pairs(__builtin_bit_cast(Whole, codes[i]), digits);
            some = i % kTogether == 0 ? products : add_pairs(some, products);
            if (i % kTogether == kTogether - 1 || i == kWords - 1) total = add_widened(total, some);
        }
    }
    if constexpr (kTogether == 0) total = add_widened(add_widened(total, some), high, 16);
    return __builtin_bit_cast(IntVec, total);
#else
    for (int i = 0; i < kWords; ++i)
        for (int lane = 0; lane < kWidth; ++lane)
            for (int j = 0; j < 4; ++j)
                sum[lane] += codes[i][4 * lane + j] * x[4 * i + j];
    return sum;
#endif
}

// A sum of products with x from the sums of products with its digits.
template <int kDigits> ALWAYS_INLINE Vec joined(auto sum_of_digit) {
    Vec value = __builtin_convertvector(sum_of_digit(kDigits - 1), Vec);
#pragma GCC unroll 2
    for (int d = kDigits - 2; d >= 0; --d)
        value = fused(value, splat(256), __builtin_convertvector(sum_of_digit(d), Vec));
    return value;
}

// What the sums of a half of a block, or of all of it, start with.
template <int kHalves, int kDigits> ALWAYS_INLINE IntVec start_of(const BlockFacts<kDigits>& facts, int d, int half) {
    return (kHalves == 2 ? facts.starts[d][half] : facts.starts[d][0] + facts.starts[d][1]) - IntVec{};
}

// How the sums of a block are scaled.
enum class Scaling { of_output, of_block, of_halves };

// The scales and offsets of kWidth outputs, of one block.
template <int kHalves> struct BlockScales { Vec scale[kHalves], offset[kHalves]; };

// A unit of weights as it passes by, block after block: its lines of codes, and its scales.
template <typename Codes, Scaling kScaling> struct UnitBlocks {
    static constexpr int kLines = kBlock / Codes::kInputs, kHalves = kScaling == Scaling::of_halves ? 2 : 1;

    const LinearArgs& a;
    const char *facts, *offsets, *codes;
    int lines_left;

    // The next block's; `last` takes what lies behind the unit's end, which must not be read.
    using Last = char[kLines * kLineBytes];
    ALWAYS_INLINE const char* next(Last& last) {
        const char* lines = codes;
        if (lines_left >= kLines) {
#pragma GCC unroll 8
            for (int i = kLinesAhead; i < kLinesAhead + kLines; ++i)
                __builtin_prefetch(codes + i * static_cast<int>(kLineBytes));
        } else {
            __builtin_memset(last, 0, sizeof(last));
            __builtin_memcpy(last, codes, static_cast<std::size_t>(lines_left) * kLineBytes);
            lines = last;
        }
        codes += kLines * kLineBytes;
        lines_left -= kLines;
        return lines;
    }
    ALWAYS_INLINE BlockScales<kHalves> scales(int block, int lane) const {
        BlockScales<kHalves> out = {};
        if constexpr (kScaling != Scaling::of_output)
            for (int half = 0; half < kHalves; ++half) {
                const int group = (block * kBlock + half * kHalf) / a.groups.size;
                out.scale[half] = group_facts(a, facts, group, lane);
                if (a.groups.has_offsets) out.offset[half] = group_facts(a, offsets, group, lane);
            }
        return out;
    }
    // Adds to a row's sums what a block brings; whole(d, half): its sums of digits.
    template <int kDigits>
    ALWAYS_INLINE void add(Vec& sum, const BlockFacts<kDigits>& of_row, const BlockScales<kHalves>& of,
                           auto whole) const {
#pragma GCC unroll 2
        for (int half = 0; half < kHalves; ++half) {
            const Vec value = joined<kDigits>([&](int d) { return whole(d, half); });
            if constexpr (kScaling == Scaling::of_output)
                sum = fused(value, splat(of_row.scale), sum);
            else
                sum = fused(rounded(value * of_row.scale), of.scale[half], sum);
            if (kScaling == Scaling::of_output || !a.groups.has_offsets) continue;
            const float inputs = kHalves == 2 ? of_row.sums[half] : of_row.sums[0] + of_row.sums[1];
            sum = fused(splat(-inputs), of.offset[half], sum);
        }
    }
};

constexpr int kNearRows = 64; // whose sums stay in the first cache
using RowSums = Vec[kNearRows][kVectors];

// Adds up the products of `rows` rows, from first_row on.
struct InVectors {
    template <typename Codes, int kDigits, Scaling kScaling>
    static ALWAYS_INLINE void add_block(const UnitBlocks<Codes, kScaling>& unit, const char* lines,
                                        const RowDigits<kDigits>& x, int block, int first_row, int rows,
                                        RowSums& sums) {
        constexpr int kHalves = UnitBlocks<Codes, kScaling>::kHalves, kWords = kBlockLines / kHalves;
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
            Bytes codes[kBlockLines];
            Codes::load(lines, v, codes);
            const BlockScales<kHalves> scales = unit.scales(block, v * kWidth);
            for (int r = 0; r < rows; ++r) {
                const BlockFacts<kDigits>& facts = x.facts[x.at(block, first_row + r)];
                const signed char* digits = x.digits_at(block, first_row + r);
                unit.add(sums[r][v], facts, scales, [&](int d, int half) {
                    return add_products<Codes::kMost, kWords>(start_of<kHalves>(facts, d, half), codes + half * kWords,
                                                              digits + d * kBlock + half * kHalf);
                });
            }
        }
    }
};

template <typename Products, typename Codes, int kDigits, Scaling kScaling>
void digits_unit(const LinearArgs& a, const RowDigits<kDigits>& x, int unit, const UnitBlocks<Codes, kScaling>& of) {
    for (int first_row = 0; first_row < a.rows; first_row += kNearRows) {
        const int rows = a.rows - first_row < kNearRows ? a.rows - first_row : kNearRows;
        RowSums sums;
        __builtin_memset(sums, 0, sizeof(sums[0]) * static_cast<std::size_t>(rows));
        UnitBlocks<Codes, kScaling> blocks = of;
        for (int block = 0; block < x.blocks; ++block) {
            alignas(kLineBytes) typename UnitBlocks<Codes, kScaling>::Last last;
            const char* lines = blocks.next(last);
            Products::add_block(blocks, lines, x, block, first_row, rows, sums);
        }
        for (int r = 0; r < rows; ++r) {
            Vec whole[1][kVectors];
            __builtin_memcpy(whole, sums[r], sizeof(whole));
            put_outputs<kScaling == Scaling::of_output, 1, kVectors>(a, unit, first_row + r, whole);
        }
    }
}

template <typename Products, typename Codes, int kDigits, Scaling kScaling> void digits_rows(const LinearArgs& a) {
    constexpr bool kGroups = kScaling != Scaling::of_output;
    const GroupedUnit of(kGroups ? a.groups : WeightGroups{kBlock}, a.k, Codes::kInputs);
    const int lines = kGroups ? of.groups * of.group_lines : (a.k + Codes::kInputs - 1) / Codes::kInputs;
    const std::size_t unit_bytes = kGroups ? of.bytes() : static_cast<std::size_t>(lines) * kLineBytes;
    const RowDigits<kDigits> x(a, (lines * Codes::kInputs + kBlock - 1) / kBlock);
    lay_out_digits(a, x, Codes::kLess);
    for (int unit = 0; unit < a.units; ++unit) {
        const char* begin = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
        digits_unit<Products>(
            a, x, unit,
            UnitBlocks<Codes, kScaling>{a, begin, begin + of.offsets(), begin + (kGroups ? of.codes() : 0), lines});
    }
}

template <typename Products, typename Codes, Scaling kScaling> void with_digits(const LinearArgs& a) {
    switch (a.digits) {
    case 1:
        return digits_rows<Products, Codes, 1, kScaling>(a);
    case 2:
        return digits_rows<Products, Codes, 2, kScaling>(a);
    default:
        return digits_rows<Products, Codes, 3, kScaling>(a);
    }
}

template <typename Products> void linear_digits(const LinearArgs& a) {
    const bool has_halves = a.groups.size < kBlock;
    if (a.type == WeightType::int8 && a.groups.size == 0)
        with_digits<Products, Int8Codes, Scaling::of_output>(a);
    else if (a.type == WeightType::int8)
        has_halves ? with_digits<Products, Int8Codes, Scaling::of_halves>(a)
                   : with_digits<Products, Int8Codes, Scaling::of_block>(a);
    else
        has_halves ? with_digits<Products, Int4Codes, Scaling::of_halves>(a)
                   : with_digits<Products, Int4Codes, Scaling::of_block>(a);
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
