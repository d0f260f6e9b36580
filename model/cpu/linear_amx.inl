// Rows times 8-bit weights in tiles: 64 inputs of 16 outputs at once, for 5 rows of three digits each. Part of
// linear_int8.inl's arithmetic: sums are whole numbers, so the results are the same bits, whoever makes them.
//
// A tile of weights is 16 lines of a unit as they lie. The digits are laid out as [tiles of rows][k / 64][rows of a
// tile][digit][64]. The instructions are spelled out: intrinsics take no template parameters as tile numbers.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

constexpr int kTileRows = 5;    // rows of a tile at most: 15 of 16
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
// sums += digits (signed) times weights (without sign, or signed).
template <int kSums, int kDigitTile, int kWeightTile> ALWAYS_INLINE void tile_multiply() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kDigitTile), "i"(kWeightTile));
}
template <int kSums, int kDigitTile, int kWeightTile> ALWAYS_INLINE void tile_multiply_signed() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kDigitTile), "i"(kWeightTile));
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

struct Tiling {
    int tiles = 0;  // of rows
    int rows = 0;   // of a tile; the last may hold less
    int blocks = 0; // of 64 inputs
    char* digits = nullptr;
    float* facts = nullptr;      // [rows][4]
    float* group_sums = nullptr; // [rows][n_groups], of groups that have zeros
    int n_groups = 0;

    std::size_t tile_bytes() const { return static_cast<std::size_t>(rows) * kDigits * kPlaneBytes; }
    char* digits_at(int tile, int block) const {
        return digits +
               (static_cast<std::size_t>(tile) * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(block)) *
                   tile_bytes();
    }
};

// Digits take 3 bytes where linear_scratch_floats counts 4.125, which leaves room for the facts and for a last tile
// that is not full.
Tiling tiling_of(const LinearArgs& a) {
    Tiling t;
    t.tiles = (a.rows + kTileRows - 1) / kTileRows;
    t.rows = (a.rows + t.tiles - 1) / t.tiles;
    const int size = a.groups.size, inputs = size > 0 ? (a.groups.lead + a.k + size - 1) / size * size : a.k;
    t.blocks = (inputs + kTileInputs - 1) / kTileInputs;
    t.facts = a.scratch;
    t.group_sums = a.scratch + a.rows * (kDigits + 1);
    t.n_groups = a.groups.has_zeros ? inputs / size : 0;
    const auto behind = reinterpret_cast<std::uintptr_t>(t.group_sums + a.rows * t.n_groups);
    t.digits = reinterpret_cast<char*>((behind + kLineBytes - 1) / kLineBytes * kLineBytes);
    return t;
}

void lay_out_tiles(const LinearArgs& a, const Tiling& t, float times) {
    const __m512i ones = _mm512_set1_epi8(1);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (int r = 0; r < a.rows; ++r) {
        const float* x = a.x + static_cast<std::size_t>(r) * a.x_stride;
        const Int8Scale scale = scale_of_row(x, a.k);
        __m512i digit_sums = _mm512_setzero_si512();
        for (int k = 0; k < t.blocks * kTileInputs; k += kWidth) {
            const __m512i words = digits_of(inputs_of(a, x, k - a.groups.lead), scale.there);
            digit_sums = _mm512_dpbusd_epi32(digit_sums, ones, words);
            if (t.n_groups > 0 && (k + kWidth) % a.groups.size == 0) {
                if (k < t.n_groups * a.groups.size)
                    t.group_sums[r * t.n_groups + k / a.groups.size] = DigitSums(digit_sums).value() * times;
                digit_sums = _mm512_setzero_si512();
            }
            alignas(64) char planes[kLineBytes];
            _mm512_store_si512(planes, _mm512_maskz_permutexvar_epi32(0xffff, order, words));
            char* to = t.digits_at(r / t.rows, k / kTileInputs) +
                       static_cast<std::size_t>(r % t.rows) * kDigits * kPlaneBytes + k % kTileInputs;
            for (std::size_t d = 0; d < kDigits; ++d)
                __builtin_memcpy(to + d * kPlaneBytes, planes + d * kWidth, kWidth);
        }
        put_facts(t.facts + r * (kDigits + 1), digit_sums, scale.back / times);
    }
}

// One tile of weights of a unit, for 1 or 2 tiles of digits that are loaded already.
template <int kTiles, int kUnits, int kUnit> ALWAYS_INLINE void multiply_unit(const char* lines) {
    tile_load<6 + kUnit % 2>(lines);
    tile_multiply<kUnit, 4, 6 + kUnit % 2>();
    if constexpr (kTiles == 2) tile_multiply<kUnits + kUnit, 5, 6 + kUnit % 2>();
}

// 64 inputs of kUnits units, whose lines lie `step` bytes apart.
template <int kTiles, int kUnits>
ALWAYS_INLINE void multiply_block(const Tiling& t, int tile, int block, const char* lines, std::size_t step) {
    tile_load<4>(t.digits_at(tile, block));
    if constexpr (kTiles == 2) tile_load<5>(t.digits_at(tile + 1, block));
    multiply_unit<kTiles, kUnits, 0>(lines);
    if constexpr (kUnits > 1) multiply_unit<kTiles, kUnits, 1>(lines + step);
    if constexpr (kUnits > 2) {
        multiply_unit<kTiles, kUnits, 2>(lines + 2 * step);
        multiply_unit<kTiles, kUnits, 3>(lines + 3 * step);
    }
}

template <int kTiles, int kUnits, int kSums>
ALWAYS_INLINE void put_tile(const LinearArgs& a, const Tiling& t, int unit, int tile) {
    alignas(64) std::int32_t sums[16][kLanes];
    tile_store<kSums>(sums);
    const int first = (tile + kSums / kUnits) * t.rows, count = a.rows - first < t.rows ? a.rows - first : t.rows;
    for (int r = 0; r < count; ++r) {
        const float* facts = t.facts + (first + r) * (kDigits + 1);
        const auto sum = [&](int d) {
            return numbers_of(_mm512_add_epi32(_mm512_load_si512(sums[r * kDigits + d]),
                                               _mm512_set1_epi32(__builtin_bit_cast(int, facts[d]))));
        };
        Vec whole[1][1] = {{put_together(sum(0), sum(1), sum(2), facts[kDigits])}};
        put_outputs<true, 1, 1>(a, unit + kSums % kUnits, first + r, whole);
    }
}

// Tiles [tile, tile + kTiles) of rows, units [unit, unit + kUnits); kTiles * kUnits tiles of sums.
template <int kTiles, int kUnits> void tiles_block(const LinearArgs& a, const Tiling& t, int unit, int tile) {
    static_assert(kTiles * kUnits <= 4);
    const int lines = (a.k + kGroup - 1) / kGroup, whole = lines / kTileLines, rest = lines % kTileLines;
    const std::size_t unit_bytes = static_cast<std::size_t>(lines) * kLineBytes;
    const char* w = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    constexpr std::size_t kTileBytes = kTileLines * kLineBytes;
    for (int block = 0; block < whole; ++block, w += kTileBytes) {
        // The tiles after the next are asked for; at a unit's end, those of the units that follow.
        const char* ahead = w + 2 * kTileBytes + (block + 2 < whole ? 0 : (kUnits - 1) * unit_bytes);
        for (std::size_t u = 0; u < kUnits; ++u)
            for (std::size_t line = 0; line < kTileLines; ++line)
                __builtin_prefetch(ahead + u * unit_bytes + line * kLineBytes);
        multiply_block<kTiles, kUnits>(t, tile, block, w, unit_bytes);
    }
    if (rest > 0) { // lines behind the unit's end must not be read
        alignas(64) char last[kUnits][kTileBytes] = {};
        for (std::size_t u = 0; u < kUnits; ++u)
            __builtin_memcpy(last[u], w + u * unit_bytes, static_cast<std::size_t>(rest) * kLineBytes);
        multiply_block<kTiles, kUnits>(t, tile, whole, last[0], kTileBytes);
    }
    put_tile<kTiles, kUnits, 0>(a, t, unit, tile);
    if constexpr (kTiles * kUnits > 1) put_tile<kTiles, kUnits, 1>(a, t, unit, tile);
    if constexpr (kTiles * kUnits > 2) put_tile<kTiles, kUnits, 2>(a, t, unit, tile);
    if constexpr (kTiles * kUnits > 3) put_tile<kTiles, kUnits, 3>(a, t, unit, tile);
}

// As many units at once as there are tiles for their sums, and 1 or 2 tiles of rows. Returns how many.
int multiply_units(const LinearArgs& a, const Tiling& t, int unit) {
    const int left = a.units - unit;
    if (t.tiles == 1 && left >= 4) return tiles_block<1, 4>(a, t, unit, 0), 4;
    const bool two = left >= 2;
    for (int tile = 0; tile < t.tiles; tile += 2) {
        if (tile + 1 < t.tiles)
            two ? tiles_block<2, 2>(a, t, unit, tile) : tiles_block<2, 1>(a, t, unit, tile);
        else
            two ? tiles_block<1, 2>(a, t, unit, tile) : tiles_block<1, 1>(a, t, unit, tile);
    }
    return two ? 2 : 1;
}

// ---- groups: what the rows' digits sum up over a group is scaled, and added up in vectors ----

// Tiles of weights hold as many inputs as a group, up to 64.
int tile_inputs(const LinearArgs& a) {
    return a.groups.size > 0 && a.groups.size < kTileInputs ? a.groups.size : kTileInputs;
}

// The codes of a tile of a unit, from its lines on: 4 inputs of 16 outputs in each row.
template <typename Bytes> ALWAYS_INLINE void unpack_codes(const char* lines, int count, char* out) {
    for (int line = 0; line < count; ++line, lines += kLineBytes) {
        __m512i codes[Bytes::kWords];
        Bytes::template load<true>(lines, codes);
        for (int word = 0; word < Bytes::kWords; ++word, out += kLineBytes)
            _mm512_store_si512(out, codes[word]);
    }
}

using TileSums = std::int32_t[16][kLanes];
using TileWeights = char[kTileLines * kLineBytes];

// Clears the first kTiles tiles of sums, and stores them.
template <int kTiles> ALWAYS_INLINE void zero_sums() {
    tile_zero<kTiles - 1>();
    if constexpr (kTiles > 1) zero_sums<kTiles - 1>();
}
template <int kTiles> ALWAYS_INLINE void store_sums(TileSums* sums) {
    if constexpr (kTiles > 1) store_sums<kTiles - 1>(sums);
    tile_store<kTiles - 1>(sums[kTiles - 1]);
}

// Adds products to sums kTile and those before it: of one tile of rows and several units, or the other way round.
template <int kTiles, int kUnits, int kTile>
ALWAYS_INLINE void multiply_codes(const Tiling& t, int tile, int k, const TileWeights* weights) {
    if constexpr (kTile > 0) multiply_codes<kTiles, kUnits, kTile - 1>(t, tile, k, weights);
    constexpr int kDigitTile = 4 + (kUnits > 1 ? 0 : kTile % 2), kWeightTile = 6 + (kUnits > 1 ? kTile % 2 : 0);
    if constexpr (kUnits == 1 || kTile == 0)
        tile_load<kDigitTile>(t.digits_at(tile + kTile, k / kTileInputs) + k % kTileInputs);
    if constexpr (kUnits > 1 || kTile == 0) tile_load<kWeightTile>(weights[kTile]);
    tile_multiply_signed<kTile, kDigitTile, kWeightTile>();
}

// As tiles_block: kTiles tiles of rows, kUnits units, one of the two by one. A step is a tile's inputs; the codes of
// the next are unpacked before, and the sums of the group before it scaled behind, so that what is stored has time to
// get to where tiles and vectors are loaded from.
template <typename Bytes, int kTiles, int kUnits>
void group_tiles_block(const LinearArgs& a, const Tiling& t, int unit, int tile) {
    constexpr int kSums = kTiles * kUnits;
    static_assert(kSums <= 4 && (kTiles == 1 || kUnits == 1));
    const GroupedUnit of(a.groups, a.k, Bytes::kInputs);
    const std::size_t unit_bytes = of.bytes();
    const int inputs = tile_inputs(a), lines = inputs / Bytes::kInputs, group_steps = a.groups.size / inputs;
    const int steps = of.groups * group_steps;
    const char* begin = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
    const char* codes = begin + of.codes();
    alignas(64) TileWeights weights[2][kUnits];
    alignas(64) TileSums parts[2][kSums] = {};
    Vec sums[kSums][kTileRows] = {};
    const auto unpack = [&](int step) {
        const char* from = codes + static_cast<std::size_t>(step * lines) * kLineBytes;
        const char* ahead = ahead_of(from, (steps - step) * lines, (kUnits - 1) * unit_bytes);
        for (std::size_t u = 0; u < kUnits; ++u) {
            for (int line = 0; line < lines; ++line)
                __builtin_prefetch(ahead + u * unit_bytes + line * kLineBytes);
            unpack_codes<Bytes>(from + u * unit_bytes, lines, weights[step % 2][u]);
        }
    };
    const auto add = [&](int group) {
#pragma GCC unroll 4
        for (int s = 0; s < kSums; ++s) {
            const char* facts = begin + static_cast<std::size_t>(s % kUnits) * unit_bytes;
            const Vec scale = group_facts(a, facts, group, 0);
            Vec zero = {};
            if (a.groups.has_zeros) zero = group_facts(a, facts + of.zeros(), group, 0);
            const int first = (tile + s / kUnits) * t.rows;
#pragma GCC unroll 8
            for (int r = 0; r < kTileRows; ++r) {
                const auto sum = [&](int d) { return _mm512_load_si512(parts[group % 2][s][r * kDigits + d]); };
                const bool has_sum = a.groups.has_zeros && r < t.rows && first + r < a.rows;
                const float x_sum = has_sum ? t.group_sums[(first + r) * t.n_groups + group] : 0.0f;
                add_group(sums[s][r], group_value(sum(0), sum(1), sum(2)), zero, x_sum, scale);
            }
        }
    };
    unpack(0);
    for (int step = 0; step < steps; ++step) {
        if (step + 1 < steps) unpack(step + 1);
        const int group = step / group_steps;
        if (step % group_steps == 0) zero_sums<kSums>();
        multiply_codes<kTiles, kUnits, kSums - 1>(t, tile, step * inputs, weights[step % 2]);
        if ((step + 1) % group_steps != 0) continue;
        store_sums<kSums>(parts[group % 2]);
        if (group > 0) add(group - 1);
    }
    add(of.groups - 1);
    for (int s = 0; s < kSums; ++s) {
        const int first = (tile + s / kUnits) * t.rows, count = a.rows - first < t.rows ? a.rows - first : t.rows;
        for (int r = 0; r < count; ++r) {
            Vec whole[1][1] = {{rounded(sums[s][r] * t.facts[(first + r) * (kDigits + 1) + kDigits])}};
            put_outputs<false, 1, 1>(a, unit + s % kUnits, first + r, whole);
        }
    }
}

template <typename Bytes> int multiply_grouped_units(const LinearArgs& a, const Tiling& t, int unit) {
    if (t.tiles == 1 && a.units - unit >= 4) return group_tiles_block<Bytes, 1, 4>(a, t, unit, 0), 4;
    for (int tile = 0; tile < t.tiles; tile += 4) {
        const int left = t.tiles - tile;
        left >= 4   ? group_tiles_block<Bytes, 4, 1>(a, t, unit, tile)
        : left == 3 ? group_tiles_block<Bytes, 3, 1>(a, t, unit, tile)
        : left == 2 ? group_tiles_block<Bytes, 2, 1>(a, t, unit, tile)
                    : group_tiles_block<Bytes, 1, 1>(a, t, unit, tile);
    }
    return 1;
}

// ---- both ----

void linear_in_tiles(const LinearArgs& a) {
    const Tiling t = tiling_of(a);
    lay_out_tiles(a, t, a.type == WeightType::int4 ? Int4Bytes::kTimes : 1);
    const int inputs = tile_inputs(a);
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
        const bool is_weights = tile >= 6, is_digits = tile >= 4 && !is_weights;
        config.row_bytes[tile] = static_cast<std::uint16_t>(is_digits ? inputs : kLineBytes);
        config.rows[tile] = static_cast<std::uint8_t>(is_weights ? inputs / kGroup : t.rows * kDigits);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
    for (int unit = 0; unit < a.units;)
        unit += a.type == WeightType::int4 ? multiply_grouped_units<Int4Bytes>(a, t, unit)
                : a.groups.size > 0        ? multiply_grouped_units<Int8Bytes>(a, t, unit)
                                           : multiply_units(a, t, unit);
    __asm__ volatile("tilerelease");
}

// As linear, with tiles where there are rows to fill them.
void linear_amx(const LinearArgs& a) {
    const bool has_digits = a.type == WeightType::int8 || (a.type == WeightType::int4 && !a.groups.values);
    if (has_digits && a.rows > 2) return linear_in_tiles(a);
    linear(a);
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
