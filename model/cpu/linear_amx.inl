// Rows times 8- and 4-bit weights in tiles: 64 inputs of 16 outputs at once, for 5 rows of three digits each or 8 rows
// of two. The arithmetic is that of linear_int8.inl and linear_groups.inl: sums are whole numbers, so the results are
// the same bits, whoever makes them.
//
// A tile of weights is 16 lines of a unit as they lie. The digits are laid out as [tiles of rows][k / 64][rows of a
// tile][digit][64]. The instructions are spelled out: intrinsics take no template parameters as tile numbers.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

constexpr int kTileInputs = 64; // of a tile
constexpr int kTileLines = kTileInputs / kGroup;
constexpr std::size_t kPlaneBytes = kTileInputs;

template <int kTile> ALWAYS_INLINE void tile_zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile> ALWAYS_INLINE void tile_load(const void* from) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(kLineBytes), "i"(kTile) : "memory");
}
template <int kTile> ALWAYS_INLINE void tile_store(void* to) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(kLineBytes), "i"(kTile) : "memory");
}
// sums += digits (signed) times weights (signed, or without sign).
template <bool kSigned, int kSums, int kDigitTile, int kWeightTile> ALWAYS_INLINE void tile_multiply() {
    if constexpr (kSigned)
        __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kDigitTile), "i"(kWeightTile));
    else
        __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kDigitTile), "i"(kWeightTile));
}

// The call's tiles: 0 to 3 sums, 4 and 5 digits, 6 and 7 weights.
struct TileConfig {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// How the rows of a call are shared out among tiles, kCount digits a row.
template <int kCount> struct Tiling {
    int tiles = 0;  // of rows
    int rows = 0;   // of a tile; the last may hold less
    int blocks = 0; // of 64 inputs
    char* digits = nullptr;

    // `inputs` with lead and what fills the last group. Digits take 2 or 3 bytes where linear_scratch_floats counts
    // 4.125, which leaves room for the facts in front of them and for a last tile that is not full.
    Tiling(const LinearArgs& a, int inputs, const float* behind_facts) {
        constexpr int kMaxRows = 16 / kCount;
        tiles = (a.rows + kMaxRows - 1) / kMaxRows;
        rows = (a.rows + tiles - 1) / tiles;
        blocks = (inputs + kTileInputs - 1) / kTileInputs;
        const auto behind = reinterpret_cast<std::uintptr_t>(behind_facts);
        digits = reinterpret_cast<char*>((behind + kLineBytes - 1) / kLineBytes * kLineBytes);
    }
    int rows_of(const LinearArgs& a, int tile) const {
        return a.rows - tile * rows < rows ? a.rows - tile * rows : rows;
    }
    std::size_t tile_bytes() const { return static_cast<std::size_t>(rows) * kCount * kPlaneBytes; }
    char* digits_at(int tile, int block) const {
        return digits +
               (static_cast<std::size_t>(tile) * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(block)) *
                   tile_bytes();
    }
    // Digits of inputs [k, k + 16) of a row, as digits_of has them.
    ALWAYS_INLINE void put(int row, int k, __m512i words) const {
        const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        alignas(64) __m128i planes[4];
        _mm512_store_si512(planes, _mm512_maskz_permutexvar_epi32(0xffff, order, words));
        char* to = digits_at(row / rows, k / kTileInputs) +
                   static_cast<std::size_t>(row % rows) * kCount * kPlaneBytes + k % kTileInputs;
        for (std::size_t d = 0; d < kCount; ++d)
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to + d * kPlaneBytes), planes[d]);
    }
    // Tiles of `inputs` inputs.
    void configure(int inputs) const {
        TileConfig config;
        for (int tile = 0; tile < 8; ++tile) {
            const bool is_weights = tile >= 6, is_digits = tile >= 4 && !is_weights;
            config.row_bytes[tile] = static_cast<std::uint16_t>(is_digits ? inputs : kLineBytes);
            config.rows[tile] = static_cast<std::uint8_t>(is_weights ? inputs / kGroup : rows * kCount);
        }
        __asm__ volatile("ldtilecfg %0" : : "m"(config));
    }
};

// One tile of weights of a unit, for 1 or 2 tiles of digits that are loaded already.
template <bool kSigned, int kTiles, int kUnits, int kUnit> ALWAYS_INLINE void multiply_unit(const char* lines) {
    tile_load<6 + kUnit % 2>(lines);
    tile_multiply<kSigned, kUnit, 4, 6 + kUnit % 2>();
    if constexpr (kTiles == 2) tile_multiply<kSigned, kUnits + kUnit, 5, 6 + kUnit % 2>();
}

// A tile's inputs, from input k on, of kUnits units, whose lines lie `step` bytes apart.
template <bool kSigned, int kTiles, int kUnits, int kCount>
ALWAYS_INLINE void multiply_block(const Tiling<kCount>& t, int tile, int k, const char* lines, std::size_t step) {
    static_assert(kTiles <= 2 && kTiles * kUnits <= 4 && kUnits != 3);
    const int block = k / kTileInputs, within = k % kTileInputs;
    tile_load<4>(t.digits_at(tile, block) + within);
    if constexpr (kTiles == 2) tile_load<5>(t.digits_at(tile + 1, block) + within);
    multiply_unit<kSigned, kTiles, kUnits, 0>(lines);
    if constexpr (kUnits > 1) multiply_unit<kSigned, kTiles, kUnits, 1>(lines + step);
    if constexpr (kUnits > 2) {
        multiply_unit<kSigned, kTiles, kUnits, 2>(lines + 2 * step);
        multiply_unit<kSigned, kTiles, kUnits, 3>(lines + 3 * step);
    }
}

// Clears the first kTiles tiles of sums, and stores them.
using TileSums = std::int32_t[16][kLanes];
template <int kTiles> ALWAYS_INLINE void zero_sums() {
    tile_zero<kTiles - 1>();
    if constexpr (kTiles > 1) zero_sums<kTiles - 1>();
}
template <int kTiles> ALWAYS_INLINE void store_sums(TileSums* sums) {
    if constexpr (kTiles > 1) store_sums<kTiles - 1>(sums);
    tile_store<kTiles - 1>(sums[kTiles - 1]);
}

// As many units at once as there are tiles for their sums, and 1 or 2 tiles of rows.
template <typename Block> ALWAYS_INLINE void for_each_block(int units, int tiles, Block block) {
    for (int unit = 0; unit < units;) {
        const int left = units - unit;
        if (tiles == 1 && left >= 4) {
            block.template operator()<1, 4>(unit, 0);
            unit += 4;
            continue;
        }
        for (int tile = 0; tile < tiles; tile += 2) {
            if (tile + 1 < tiles)
                left >= 2 ? block.template operator()<2, 2>(unit, tile) : block.template operator()<2, 1>(unit, tile);
            else
                left >= 2 ? block.template operator()<1, 2>(unit, tile) : block.template operator()<1, 1>(unit, tile);
        }
        unit += left >= 2 ? 2 : 1;
    }
}

// ---- one scale an output ----

struct RowTiles : Tiling<kDigits> {
    float* facts; // [rows][4], as put_facts has them

    explicit RowTiles(const LinearArgs& a) : Tiling(a, a.k, a.scratch + a.rows * (kDigits + 1)), facts(a.scratch) {}
    void lay_out(const LinearArgs& a) const {
        const __m512i ones = _mm512_set1_epi8(1);
        for (int r = 0; r < a.rows; ++r) {
            const float* x = a.x + static_cast<std::size_t>(r) * a.x_stride;
            const DigitScale scale = scale_of_row(x, a.k);
            __m512i digit_sums = _mm512_setzero_si512();
            for (int k = 0; k < blocks * kTileInputs; k += kWidth) {
                const __m512i words = digits_of<kDigits>(inputs_of(a, x, k), scale.there);
                digit_sums = _mm512_dpbusd_epi32(digit_sums, ones, words);
                put(r, k, words);
            }
            put_facts(facts + r * (kDigits + 1), digit_sums, scale.back);
        }
    }
};

// Tiles [tile, tile + kTiles) of rows, units [unit, unit + kUnits).
template <int kTiles, int kUnits> void row_tiles_block(const LinearArgs& a, const RowTiles& t, int unit, int tile) {
    constexpr int kSums = kTiles * kUnits;
    const int lines = (a.k + kGroup - 1) / kGroup, whole = lines / kTileLines, rest = lines % kTileLines;
    const std::size_t unit_bytes = static_cast<std::size_t>(lines) * kLineBytes;
    const char* w = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
    zero_sums<kSums>();
    constexpr std::size_t kTileBytes = kTileLines * kLineBytes;
    for (int block = 0; block < whole; ++block, w += kTileBytes) {
        // The tiles after the next are asked for; at a unit's end, those of the units that follow.
        const char* ahead = w + 2 * kTileBytes + (block + 2 < whole ? 0 : (kUnits - 1) * unit_bytes);
        for (std::size_t u = 0; u < kUnits; ++u)
            for (std::size_t line = 0; line < kTileLines; ++line)
                __builtin_prefetch(ahead + u * unit_bytes + line * kLineBytes);
        multiply_block<false, kTiles, kUnits>(t, tile, block * kTileInputs, w, unit_bytes);
    }
    if (rest > 0) { // lines behind the unit's end must not be read
        alignas(64) char last[kUnits][kTileBytes] = {};
        for (std::size_t u = 0; u < kUnits; ++u)
            __builtin_memcpy(last[u], w + u * unit_bytes, static_cast<std::size_t>(rest) * kLineBytes);
        multiply_block<false, kTiles, kUnits>(t, tile, whole * kTileInputs, last[0], kTileBytes);
    }
    alignas(64) TileSums sums[kSums];
    store_sums<kSums>(sums);
    for (int s = 0; s < kSums; ++s)
        for (int r = 0, row = (tile + s / kUnits) * t.rows; r < t.rows_of(a, tile + s / kUnits); ++r, ++row) {
            const float* facts = t.facts + row * (kDigits + 1);
            const auto sum = [&](int d) {
                return numbers_of(_mm512_add_epi32(_mm512_load_si512(sums[s][r * kDigits + d]),
                                                   _mm512_set1_epi32(__builtin_bit_cast(int, facts[d]))));
            };
            Vec whole_row[1][1] = {{put_together(sum(0), sum(1), sum(2), facts[kDigits])}};
            put_outputs<true, 1, 1>(a, unit + s % kUnits, row, whole_row);
        }
}

void linear_rows_in_tiles(const LinearArgs& a) {
    const RowTiles t(a);
    t.lay_out(a);
    t.configure(kTileInputs);
    for_each_block(a.units, t.tiles, [&]<int kTiles, int kUnits>(int unit, int tile) {
        row_tiles_block<kTiles, kUnits>(a, t, unit, tile);
    });
}

// ---- scales of groups: what the rows' digits sum up over a group is scaled, and added up in vectors ----

template <int kCount> struct GroupTiles : Tiling<kCount> {
    int groups;
    float* scales; // [rows][groups]: 2^-e / kTimes
    float* sums;   // [rows][groups], of groups that have offsets: what a row sums up over the group

    GroupTiles(const LinearArgs& a, int n_groups)
        : Tiling<kCount>(a, n_groups * a.groups.size, a.scratch + 2 * a.rows * n_groups), groups(n_groups),
          scales(a.scratch), sums(a.scratch + a.rows * n_groups) {}
    void lay_out(const LinearArgs& a, float times) const {
        for (int r = 0; r < a.rows; ++r)
            take_group_digits<kCount>(
                a, r, groups, [&](int k, __m512i words) { this->put(r, k, words); },
                [&](int group, const DigitSums<kCount>& of, float back) {
                    scales[r * groups + group] = back / times;
                    sums[r * groups + group] = of.value() * (times * scales[r * groups + group]);
                });
    }
};

// The codes of a tile of a unit, from its lines on: 4 inputs of 16 outputs in each row.
template <typename Bytes> ALWAYS_INLINE void unpack_codes(const char* lines, int count, char* out) {
#pragma GCC unroll 16
    for (int line = 0; line < count; ++line) {
        __m512i codes[Bytes::kWords];
        Bytes::template load<true>(lines + line * static_cast<int>(kLineBytes), codes);
        for (int word = 0; word < Bytes::kWords; ++word, out += kLineBytes)
            _mm512_store_si512(out, codes[word]);
    }
}

using TileWeights = char[kTileLines * kLineBytes];

// As row_tiles_block. A step is a tile's inputs: kTileInputs (kWhole), or those of a smaller group. While tiles are
// multiplied the codes of the next step are unpacked and the sums of the group before are scaled, so that what is
// stored has time to get to where tiles and vectors are loaded from.
template <typename Bytes, int kTiles, int kUnits, bool kWhole, int kCount>
void group_tiles_block(const LinearArgs& a, const GroupTiles<kCount>& t, int unit, int tile) {
    constexpr int kSums = kTiles * kUnits;
    const GroupedUnit of(a.groups, a.k, Bytes::kInputs);
    const std::size_t unit_bytes = of.bytes();
    const int inputs = kWhole ? kTileInputs : a.groups.size, lines = inputs / Bytes::kInputs;
    const int group_steps = kWhole ? a.groups.size / kTileInputs : 1, steps = of.groups * group_steps;
    const char* begin = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
    const char* codes = begin + of.codes();
    alignas(64) TileWeights weights[2][kUnits];
    alignas(64) TileSums parts[2][kSums];
    alignas(64) Vec sums[kSums][16 / kCount] = {};
    int counts[kSums];
    for (int s = 0; s < kSums; ++s)
        counts[s] = t.rows_of(a, tile + s / kUnits);
    const auto unpack = [&](int step) {
        const char* from = codes + static_cast<std::size_t>(step * lines) * kLineBytes;
        const char* ahead = ahead_of(from, (steps - step) * lines, (kUnits - 1) * unit_bytes);
#pragma GCC unroll 4
        for (std::size_t u = 0; u < kUnits; ++u) {
#pragma GCC unroll 16
            for (int line = 0; line < lines; ++line)
                __builtin_prefetch(ahead + u * unit_bytes + line * kLineBytes);
            unpack_codes<Bytes>(from + u * unit_bytes, lines, weights[step % 2][u]);
        }
    };
    const auto add = [&](int group, const TileSums* of_group) {
#pragma GCC unroll 4
        for (int s = 0; s < kSums; ++s) {
            const char* facts = begin + static_cast<std::size_t>(s % kUnits) * unit_bytes;
            const Vec scale = group_facts(a, facts, group, 0);
            Vec offset = {};
            if (a.groups.has_offsets) offset = group_facts(a, facts + of.offsets(), group, 0);
            const int first = (tile + s / kUnits) * t.rows * t.groups + group;
            for (int r = 0; r < counts[s]; ++r) {
                const auto of_digit = [&](int d) { return numbers_of(_mm512_load_si512(of_group[s][r * kCount + d])); };
                add_group(sums[s][r], group_value<kCount>(of_digit), scale, t.scales[first + r * t.groups]);
                if (a.groups.has_offsets) take_offset(sums[s][r], offset, t.sums[first + r * t.groups]);
            }
        }
    };
    unpack(0);
    for (int group = 0, step = 0; group < of.groups; ++group) {
        zero_sums<kSums>();
        for (int i = 0; i < group_steps; ++i, ++step) {
            multiply_block<true, kTiles, kUnits>(t, tile, step * inputs, weights[step % 2][0], sizeof(TileWeights));
            if (step + 1 < steps) unpack(step + 1);
        }
        store_sums<kSums>(parts[group % 2]);
        if (group > 0) add(group - 1, parts[(group - 1) % 2]);
    }
    add(of.groups - 1, parts[(of.groups - 1) % 2]);
    for (int s = 0; s < kSums; ++s)
        for (int r = 0; r < counts[s]; ++r) {
            Vec whole[1][1] = {{sums[s][r]}};
            put_outputs<false, 1, 1>(a, unit + s % kUnits, (tile + s / kUnits) * t.rows + r, whole);
        }
}

template <typename Bytes, bool kWhole, int kCount>
void multiply_groups(const LinearArgs& a, const GroupTiles<kCount>& t) {
    t.configure(kWhole ? kTileInputs : a.groups.size);
    for_each_block(a.units, t.tiles, [&]<int kTiles, int kUnits>(int unit, int tile) {
        group_tiles_block<Bytes, kTiles, kUnits, kWhole>(a, t, unit, tile);
    });
}

template <typename Bytes, int kCount> void linear_groups_in_tiles(const LinearArgs& a) {
    const GroupTiles<kCount> t(a, GroupedUnit(a.groups, a.k, Bytes::kInputs).groups);
    t.lay_out(a, Bytes::kTimes);
    a.groups.size >= kTileInputs ? multiply_groups<Bytes, true>(a, t) : multiply_groups<Bytes, false>(a, t);
}

// As linear, with tiles where there are rows to fill them, and inputs: a rank's part of a small matrix may have none.
void linear_amx(const LinearArgs& a) {
    const bool has_digits = a.type == WeightType::int8 || (a.type == WeightType::int4 && !a.groups.values);
    if (!has_digits || a.rows <= 2 || a.k == 0) return linear(a);
    if (a.type == WeightType::int4)
        a.groups.digits == 2 ? linear_groups_in_tiles<Int4Bytes, 2>(a) : linear_groups_in_tiles<Int4Bytes, 3>(a);
    else
        a.groups.size > 0 ? linear_groups_in_tiles<Int8Bytes, 3>(a) : linear_rows_in_tiles(a);
    __asm__ volatile("tilerelease");
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
