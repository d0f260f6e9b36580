// Multiplies rows by weights that are whole numbers, in whole-number arithmetic. Part of linear.inl, which includes it.
//
// A row is cut into blocks of 32 inputs. In a block x = scale * (65536 h + 256 m + l). The digits h, m and l are signed
// bytes; LinearArgs::digits says how many of them are used. The scale is the block's largest magnitude, divided by the
// largest whole number with that many digits. Sums of codes times digits over a block are exact. The other steps are a
// fixed sequence of roundings. So every instruction set gives the same bits.
//
// A block's codes become unsigned bytes once for all rows. This adds a constant to the weights' own codes, and the
// start values of the sums subtract it again.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

constexpr int kBlock = 32; // inputs
constexpr int kBlockLines = kBlock / 4;
constexpr int kHalf = kBlock / 2; // the half of a block that groups of 16 make

typedef unsigned char Bytes __attribute__((vector_size(4 * kWidth), may_alias)); // kWidth outputs of a line
constexpr int kVectors = kLanes / kWidth;
constexpr int kLinesAhead = 144; // prefetched into the second-level cache: they would fill the first

// ---- rows as digits ----

// Facts of a row's block, for kHalves groups of weights.
template <int kDigits, int kHalves> struct BlockFacts {
    float scale;
    float minus_sums[kHalves];             // negative sums of inputs
    std::int32_t starts[kDigits][kHalves]; // start values for sums of products
};

// The rows of a call: [blocks][rows][digit][32] and [blocks][rows].
template <int kDigits, int kHalves> struct RowDigits {
    int rows, blocks;
    signed char* digits;
    BlockFacts<kDigits, kHalves>* facts;

    RowDigits(const LinearArgs& a, int n_blocks)
        : rows(a.rows), blocks(n_blocks), digits(reinterpret_cast<signed char*>(a.scratch)),
          facts(reinterpret_cast<BlockFacts<kDigits, kHalves>*>(digits + at(n_blocks, 0) * kDigits * kBlock)) {}
    std::size_t at(int block, int row) const {
        return static_cast<std::size_t>(block) * static_cast<std::size_t>(rows) + static_cast<std::size_t>(row);
    }
    signed char* digits_at(int block, int row) const { return digits + at(block, row) * kDigits * kBlock; }
};
// A block takes at most the bytes that linear_scratch_floats counts for one.
static_assert(3 * kBlock + sizeof(BlockFacts<3, 2>) <= sizeof(float) * kPieceStride / (kPiece / kBlock));

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

// Returns inputs [at, at + 32) of a row, in `buffer` if they do not lie together. Inputs below 0 and from k on are 0.
ALWAYS_INLINE const float* take_block(const LinearArgs& a, const float* x, int at, float* buffer) {
    const int begin = at < 0 ? -at : 0, end = a.k - at < kBlock ? a.k - at : kBlock;
    if (begin == 0 && end == kBlock && !a.order) return x + at;
    __builtin_memset(buffer, 0, kBlock * sizeof(float));
    for (int i = begin; i < end; ++i)
        buffer[i] = x[a.order ? a.order[at + i] : at + i];
    return buffer;
}

// A block with a NaN or an infinity gets a NaN scale. A block without a value above kTiny becomes 0.
template <int kDigits, int kHalves>
ALWAYS_INLINE void take_digits(const float* x, int less, signed char* digits, BlockFacts<kDigits, kHalves>& facts) {
    constexpr float kMost = kDigits == 1 ? 127 : kDigits == 2 ? 0x7f7f : 0x7f7f00; // with room for a rounding
    constexpr std::uint32_t kBias = kDigits == 1 ? 0 : kDigits == 2 ? 0x8080 : 0x808080;
    constexpr float kTiny = 1e-31f; // kMost / kTiny is a float
    UintVec magnitudes = {};
#pragma GCC unroll 8
    for (int i = 0; i < kBlock; i += kWidth) {
        const UintVec of = __builtin_bit_cast(UintVec, *reinterpret_cast<const Vec*>(x + i)) & 0x7fffffffu;
        magnitudes = of > magnitudes ? of : magnitudes;
    }
    const std::uint32_t bits = fold_lanes(
        magnitudes, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
    const auto largest = __builtin_bit_cast(float, bits);
    const bool is_number = bits < 0x7f800000u;
    const float inverse = is_number && largest > kTiny ? kMost / largest : 0;
    facts.scale = !is_number ? __builtin_nanf("") : largest > kTiny ? largest / kMost : 0;
    constexpr int kPart = kBlock / kHalves, kVectorsOfPart = kPart / kWidth;
#pragma GCC unroll 2
    for (int half = 0; half < kHalves; ++half) {
        IntVec whole[kVectorsOfPart], sum = {};
#pragma GCC unroll 8
        for (int v = 0; v < kVectorsOfPart; ++v) {
            const Vec scaled = rounded(*reinterpret_cast<const Vec*>(x + half * kPart + v * kWidth) * inverse);
            whole[v] = is_number ? to_nearest(scaled) : IntVec{};
            sum += whole[v];
        }
        const std::int32_t of_half = sum_lanes(sum);
        facts.minus_sums[half] = facts.scale * static_cast<float>(-of_half);
#pragma GCC unroll 3
        for (int d = 0; d < kDigits; ++d) {
            sum = IntVec{};
#pragma GCC unroll 8
            for (int v = 0; v < kVectorsOfPart; ++v) {
                const UintVec biased = (__builtin_bit_cast(UintVec, whole[v]) + kBias) ^ kBias;
                const IntVec digit = kDigits == 1 ? whole[v] : __builtin_bit_cast(IntVec, biased << 8 * (3 - d)) >> 24;
                sum += digit;
                *reinterpret_cast<SmallVec*>(digits + d * kBlock + half * kPart + v * kWidth) =
                    __builtin_convertvector(digit, SmallVec);
            }
            facts.starts[d][half] = -less * (kDigits == 1 ? of_half : sum_lanes(sum));
        }
    }
}

template <int kDigits, int kHalves>
void lay_out_digits(const LinearArgs& a, const RowDigits<kDigits, kHalves>& to, int less) {
    alignas(64) float buffer[kBlock];
    for (int block = 0; block < to.blocks; ++block)
        for (int r = 0; r < a.rows; ++r) {
            const float* x = a.x + static_cast<std::size_t>(r) * a.x_stride;
            take_digits(take_block(a, x, block * kBlock - a.groups.lead, buffer), less, to.digits_at(block, r),
                        to.facts[to.at(block, r)]);
        }
}

// ---- codes as bytes ----

ALWAYS_INLINE Bytes bytes_of(const char* lines, int line, int vector) {
    return reinterpret_cast<const Bytes*>(lines + line * static_cast<int>(kLineBytes))[vector];
}

// Moves the bits of each byte of a line from `from` to `to`; bits of neighbouring bytes come in too.
ALWAYS_INLINE Bytes moved(Bytes line, int from, int to) {
    const auto words = __builtin_bit_cast(UintVec, line);
    return __builtin_bit_cast(Bytes, from > to ? words >> (from - to) : words << (to - from));
}

// Makes unsigned bytes from a block's codes, for the kWidth outputs of a vector: out[i] has inputs 4 i to 4 i + 3.
template <int kCodeBits> struct BitCodes {
    static constexpr int kBits = kCodeBits, kMost = (1 << kBits) - 1;
    static constexpr int kLow = low_bits(kBits), kHigh = kBits - kLow;
    static constexpr auto kLowMask = static_cast<unsigned char>((1 << kLow) - 1);
    static constexpr auto kHighMask = static_cast<unsigned char>(kMost - kLowMask);

    static ALWAYS_INLINE void load(const LinearArgs&, const char* lines, int vector, Bytes (&out)[kBlockLines]) {
        constexpr int kTogether = 8 / kLow, kHighTogether = kHigh > 0 ? 8 / kHigh : 1;
#pragma GCC unroll 8
        for (int i = 0; i < kBlockLines; ++i) {
            const Bytes low = bytes_of(lines, i / kTogether, vector);
            out[i] = kLow == 8 ? low : moved(low, i % kTogether * kLow, 0) & kLowMask;
            if constexpr (kHigh > 0) {
                const Bytes high = bytes_of(lines, kLow + i / kHighTogether, vector);
                out[i] |= moved(high, i % kHighTogether * kHigh, kLow) & kHighMask;
            }
        }
    }
};

// Codes of 4 bits that index WeightGroups::numbers.
struct CodesOfNumbers {
    static constexpr int kBits = 4, kMost = 255;
    static ALWAYS_INLINE void load(const LinearArgs& a, const char* lines, int vector, Bytes (&out)[kBlockLines]) {
        BitCodes<4>::load(a, lines, vector, out);
#if defined(__AVX2__)
        const __m128i numbers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a.groups.numbers));
#endif
#pragma GCC unroll 8
        for (int i = 0; i < kBlockLines; ++i) {
#if defined(__AVX512F__)
            const __m512i places = __builtin_bit_cast(__m512i, out[i]);
            out[i] =
                __builtin_bit_cast(Bytes, _mm512_shuffle_epi8(_mm512_maskz_broadcast_i32x4(0xffff, numbers), places));
#elif defined(__AVX2__)
            const __m256i places = __builtin_bit_cast(__m256i, out[i]);
            out[i] = __builtin_bit_cast(Bytes, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(numbers), places));
#else
            for (int j = 0; j < 4 * kWidth; ++j)
                out[i][j] = a.groups.numbers[out[i][j]];
#endif
        }
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

ALWAYS_INLINE std::int32_t word_at(const signed char* digits) {
    std::int32_t word;
    __builtin_memcpy(&word, digits, sizeof word);
    return word;
}

#if !defined(__AVX512VNNI__)
// Returns sum + the codes of kWords words * the digits at x.
template <int kMost, int kWords>
ALWAYS_INLINE IntVec plus_products(IntVec sum, const Bytes* codes, const signed char* x) {
#if defined(__AVX2__)
    // Sums of pairs have 16 bits; kTogether of them fit into one.
    constexpr int kTogether = 32767 / (kMost * 2 * 127);
    Whole total = __builtin_bit_cast(Whole, sum), some = {}, high = {};
#pragma GCC unroll 8
    for (int i = 0; i < kWords; ++i) {
        const Whole digits = all_words(word_at(x + 4 * i));
        if constexpr (kTogether == 0) { // in halves of 4 bits, whose sums over all words fit
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
#endif

// sums[u][half] += the codes of unit u * the digits at x, for each half of a block.
template <int kMost, int kUnits, int kHalves>
ALWAYS_INLINE void add_products(IntVec (&sums)[kUnits][kHalves], const Bytes (&codes)[kUnits][kBlockLines],
                                const signed char* x) {
    constexpr int kWords = kBlockLines / kHalves;
#if defined(__AVX512VNNI__)
    // Word by word: Zen 4 needs 22 cycles for a row of two units, but 25 if it gets them unit by unit.
#pragma GCC unroll 8
    for (int i = 0; i < kWords; ++i)
#pragma GCC unroll 2
        for (int half = 0; half < kHalves; ++half) {
            const Whole digits = all_words(word_at(x + 4 * (half * kWords + i)));
#pragma GCC unroll 2
            for (int u = 0; u < kUnits; ++u)
                sums[u][half] = __builtin_bit_cast(
                    IntVec, _mm512_dpbusd_epi32(__builtin_bit_cast(Whole, sums[u][half]),
                                                __builtin_bit_cast(Whole, codes[u][half * kWords + i]), digits));
        }
#else
    for (int u = 0; u < kUnits; ++u)
        for (int half = 0; half < kHalves; ++half)
            sums[u][half] =
                plus_products<kMost, kWords>(sums[u][half], &codes[u][half * kWords], x + 4 * half * kWords);
#endif
}

// Makes a sum of products with x from the sums of products with its digits.
template <int kDigits> ALWAYS_INLINE Vec joined(auto sum_of_digit) {
    Vec value = __builtin_convertvector(sum_of_digit(kDigits - 1), Vec);
#pragma GCC unroll 2
    for (int d = kDigits - 2; d >= 0; --d)
        value = fused(value, splat(256), __builtin_convertvector(sum_of_digit(d), Vec));
    return value;
}

// The way the sums of a block are scaled.
enum class Scaling { of_output, of_block, of_halves };

// The scales and offsets of kWidth outputs, for one block.
template <int kHalves> struct BlockScales { Vec scale[kHalves], offset[kHalves]; };

// Converts kWidth signed 8-bit numbers.
ALWAYS_INLINE IntVec small_numbers(const char* from) {
#if defined(__AVX512F__)
    return __builtin_bit_cast(
        IntVec, _mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
    return __builtin_bit_cast(IntVec, _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
    IntVec out;
    for (int i = 0; i < kWidth; ++i)
        out[i] = static_cast<signed char>(from[i]);
    return out;
#endif
}

// A unit of weights as it is read, block after block: its lines of codes and its scales.
template <typename Codes, Scaling kScaling> struct UnitBlocks {
    static constexpr int kLines = Codes::kBits, kHalves = kScaling == Scaling::of_halves ? 2 : 1;

    LinearArgs a;
    const char *facts, *offsets, *outer, *codes;
    int lines_left;      // of codes
    int lines_a_block;   // of all lines of the unit, on average
    int group_bits;      // bits that an input's number has more than its group's
    const char* ahead;   // place to prefetch next
    int until_skip;      // blocks until `ahead` passes into units that are read together with this one
    std::size_t skipped; // bytes of these units

    void begin(const LinearArgs& args, const GroupedUnit& of, int unit, int together) {
        a = args;
        facts = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * of.bytes();
        offsets = facts + of.offsets(), outer = facts + of.outer(), codes = facts + of.codes();
        lines_left = of.code_lines;
        const int blocks = (of.code_lines + kLines - 1) / kLines, lines = static_cast<int>(of.bytes() / kLineBytes);
        lines_a_block = blocks > 0 ? (lines + blocks - 1) / blocks : 0;
        group_bits = a.groups.size > 0 ? __builtin_ctz(static_cast<unsigned>(a.groups.size)) : 0;
        ahead = facts + kLinesAhead * kLineBytes;
        until_skip = lines > kLinesAhead ? (lines - kLinesAhead) / lines_a_block : 0;
        skipped = static_cast<std::size_t>(together - 1) * of.bytes();
    }

    // Returns the lines of the next block. `last` buffers lines at the unit's end, past which nothing must be read.
    using Last = char[kLines * kLineBytes];
    ALWAYS_INLINE const char* next(Last& last) {
        const char* lines = codes;
        if (until_skip-- == 0) ahead += skipped;
        const char* line = ahead;
        for (int i = 0; i < lines_a_block; ++i, line += kLineBytes)
            __builtin_prefetch(line, 0, 2);
        ahead = line;
        if (lines_left < kLines) {
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
            for (int half = 0; half < kHalves; ++half)
                scale_half((block * kBlock + half * kHalf) >> group_bits, lane, out.scale[half], out.offset[half]);
        return out;
    }
    ALWAYS_INLINE void scale_half(int group, int lane, Vec& scale, Vec& offset) const {
        const std::size_t at = static_cast<std::size_t>(group) * kLanes + static_cast<std::size_t>(lane);
        switch (a.groups.scales) {
        case ScaleType::bfloat16:
        case ScaleType::float32:
            scale = group_facts(a, facts, group, lane);
            if (a.groups.has_offsets) offset = group_facts(a, offsets, group, lane);
            return;
        case ScaleType::float16:
            scale = floats_of_float16(facts + 2 * at);
            if (a.groups.has_offsets) offset = floats_of_float16(offsets + 2 * at);
            return;
        case ScaleType::steps:
        case ScaleType::nibbles:
            break;
        }
        // Whole numbers of 8 bits times float16 are exact.
        const char* of_outer =
            outer + (a.groups.outer_lead + (group << group_bits)) / kOuterGroup * GroupedUnit::outer_bytes(a.groups) +
            2 * lane;
        IntVec steps = small_numbers(facts + at), offset_steps = {};
        if (a.groups.scales == ScaleType::nibbles) {
            offset_steps = steps >> 4 & 15;
            steps &= 15;
        } else if (a.groups.has_offsets) {
            offset_steps = small_numbers(offsets + at);
        }
        scale = floats_of_float16(of_outer) * __builtin_convertvector(steps, Vec);
        if (a.groups.has_offsets)
            offset = floats_of_float16(of_outer + 2 * kLanes) * __builtin_convertvector(offset_steps, Vec);
    }
    // Adds a block's contribution to a row's sums; whole(d, half) gives its sums of digits.
    template <int kDigits>
    static ALWAYS_INLINE void add(Vec& to, const BlockFacts<kDigits, kHalves>& of_row, const BlockScales<kHalves>& of,
                                  bool has_offsets, auto whole) {
        Vec sum = to;
#pragma GCC unroll 2
        for (int half = 0; half < kHalves; ++half) {
            const Vec value = joined<kDigits>([&](int d) { return whole(d, half); });
            if constexpr (kScaling == Scaling::of_output)
                sum = fused(value, splat(of_row.scale), sum);
            else
                sum = fused(rounded(value * of_row.scale), of.scale[half], sum);
            if (kScaling != Scaling::of_output && has_offsets)
                sum = fused(splat(of_row.minus_sums[half]), of.offset[half], sum);
        }
        to = sum;
    }
};

constexpr int kNearRows = 64; // rows whose sums stay in the first-level cache
using RowSums = Vec[kNearRows][kVectors];

// Adds up the products of `rows` rows, from first_row on, with a block of kUnits units.
struct InVectors {
    // Number of units whose codes and scales fit into registers.
    static constexpr int units_together(int halves) { return kVectors == 1 && halves == 1 ? 2 : 1; }

    template <int kTogether, typename Codes, int kDigits, Scaling kScaling, int kHalves>
    static ALWAYS_INLINE void add_block(const UnitBlocks<Codes, kScaling>* units, const char* const* lines,
                                        const RowDigits<kDigits, kHalves>& x, int block, int first_row, int rows,
                                        RowSums* sums) {
        const bool has_offsets = units->a.groups.has_offsets;
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
            Bytes codes[kTogether][kBlockLines];
            BlockScales<kHalves> scales[kTogether];
#pragma GCC unroll 2
            for (int u = 0; u < kTogether; ++u) {
                Codes::load(units[u].a, lines[u], v, codes[u]);
                scales[u] = units[u].scales(block, v * kWidth);
            }
            const BlockFacts<kDigits, kHalves>* facts = &x.facts[x.at(block, first_row)];
            const signed char* digits = x.digits_at(block, first_row);
            for (int r = 0; r < rows; ++r, ++facts, digits += kDigits * kBlock) {
                IntVec whole[kDigits][kTogether][kHalves];
#pragma GCC unroll 3
                for (int d = 0; d < kDigits; ++d) {
#pragma GCC unroll 2
                    for (int u = 0; u < kTogether; ++u)
#pragma GCC unroll 2
                        for (int half = 0; half < kHalves; ++half)
                            whole[d][u][half] = facts->starts[d][half] - IntVec{};
                    add_products<Codes::kMost>(whole[d], codes, digits + d * kBlock);
                }
#pragma GCC unroll 2
                for (int u = 0; u < kTogether; ++u)
                    UnitBlocks<Codes, kScaling>::add(sums[u][r][v], *facts, scales[u], has_offsets,
                                                     [&](int d, int half) { return whole[d][u][half]; });
            }
        }
    }
};

// Multiplies all rows with units [unit, unit + kUnits).
template <typename Products, int kUnits, typename Codes, Scaling kScaling, int kDigits, int kHalves>
void digits_units(const LinearArgs& a, const RowDigits<kDigits, kHalves>& x, const GroupedUnit& of, int unit) {
    for (int first_row = 0; first_row < a.rows; first_row += kNearRows) {
        const int rows = a.rows - first_row < kNearRows ? a.rows - first_row : kNearRows;
        RowSums sums[kUnits];
        UnitBlocks<Codes, kScaling> units[kUnits];
        for (int u = 0; u < kUnits; ++u) {
            units[u].begin(a, of, unit + u, kUnits);
            __builtin_memset(sums[u], 0, sizeof(sums[u][0]) * static_cast<std::size_t>(rows));
        }
        for (int block = 0; block < x.blocks; ++block) {
            alignas(kLineBytes) typename UnitBlocks<Codes, kScaling>::Last last[kUnits];
            const char* lines[kUnits];
            for (int u = 0; u < kUnits; ++u)
                lines[u] = units[u].next(last[u]);
            Products::template add_block<kUnits>(units, lines, x, block, first_row, rows, sums);
        }
        for (int u = 0; u < kUnits; ++u)
            for (int r = 0; r < rows; ++r) {
                Vec whole[1][kVectors];
                __builtin_memcpy(whole, sums[u][r], sizeof(whole));
                put_outputs<kScaling == Scaling::of_output, 1, kVectors>(a, unit + u, first_row + r, whole);
            }
    }
}

// Weights without groups are one group of bytes; their unit ends after the last line of k.
GroupedUnit unit_of(const LinearArgs& a) {
    if (a.groups.size > 0) return {a.groups, a.k};
    GroupedUnit of(WeightGroups{.size = kBlock, .bits = 8}, 0);
    of.code_lines = (a.k + 3) / 4;
    return of;
}

template <typename Products, typename Codes, int kDigits, Scaling kScaling> void digits_rows(const LinearArgs& a) {
    const GroupedUnit of = unit_of(a);
    constexpr int kHalves = UnitBlocks<Codes, kScaling>::kHalves, kUnits = Products::units_together(kHalves);
    const RowDigits<kDigits, kHalves> x(a, (of.code_lines + Codes::kBits - 1) / Codes::kBits);
    lay_out_digits(a, x, kScaling == Scaling::of_output ? 128 : a.groups.less);
    int unit = 0;
    for (; unit + kUnits <= a.units; unit += kUnits)
        digits_units<Products, kUnits, Codes, kScaling>(a, x, of, unit);
    for (; unit < a.units; ++unit)
        digits_units<Products, 1, Codes, kScaling>(a, x, of, unit);
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

template <typename Products, typename Codes> void with_scales(const LinearArgs& a) {
    a.groups.size < kBlock ? with_digits<Products, Codes, Scaling::of_halves>(a)
                           : with_digits<Products, Codes, Scaling::of_block>(a);
}

template <typename Products> void linear_digits(const LinearArgs& a) {
    if (a.groups.size == 0) return with_digits<Products, BitCodes<8>, Scaling::of_output>(a);
    if (a.groups.numbers) return with_scales<Products, CodesOfNumbers>(a);
    switch (a.groups.bits) {
    case 2:
        return with_scales<Products, BitCodes<2>>(a);
    case 3:
        return with_scales<Products, BitCodes<3>>(a);
    case 4:
        return with_scales<Products, BitCodes<4>>(a);
    case 5:
        return with_scales<Products, BitCodes<5>>(a);
    case 6:
        return with_scales<Products, BitCodes<6>>(a);
    default:
        return with_scales<Products, BitCodes<8>>(a);
    }
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
