// Makes the products of linear_digits.inl in tiles. Each step multiplies 32 inputs of 16 outputs (or 16 inputs, for
// groups of 16) by 16 rows of digits. Sums are whole numbers, so the bits do not depend on the order of additions.
//
// The instructions are written as assembly, because intrinsics do not take template parameters as tile numbers.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

template <int kTile> ALWAYS_INLINE void tile_load(const void* from, std::size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}

// Tile 0 holds sums, 1 digits, 2 codes.
struct TileConfig {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};

    TileConfig(int inputs, int digit_rows)
        : row_bytes{kLineBytes, static_cast<std::uint16_t>(inputs), kLineBytes},
          rows{static_cast<std::uint8_t>(digit_rows), static_cast<std::uint8_t>(digit_rows),
               static_cast<std::uint8_t>(inputs / 4)} {}
};
static_assert(sizeof(TileConfig) == 64);

struct InTiles {
    static constexpr int units_together(int /*halves*/) { return 1; }

    template <int kTogether, typename Codes, int kDigits, Scaling kScaling, int kHalves>
    static void add_block(const UnitBlocks<Codes, kScaling>* units, const char* const* lines,
                          const RowDigits<kDigits, kHalves>& x, int block, int first_row, int rows, RowSums* sums) {
        constexpr int kWords = kBlockLines / kHalves, kTileRows = 16 / kDigits;
        const TileConfig config(kBlock / kHalves, kTileRows * kDigits);
        __asm__ volatile("ldtilecfg %0" : : "m"(config));
        alignas(kLineBytes) Bytes codes[kBlockLines];
        Codes::load(units->a, *lines, 0, codes);
        const BlockScales<kHalves> scales = units->scales(block, 0);
        // A last tile that is not full also reads bytes past the digits; its results for them are not used.
        for (int tile = 0; tile < rows; tile += kTileRows) {
            alignas(64) std::int32_t products[kHalves][16][kLanes];
#pragma GCC unroll 2
            for (int half = 0; half < kHalves; ++half) {
                tile_load<1>(x.digits_at(block, first_row + tile) + half * kHalf, kBlock);
                tile_load<2>(&codes[half * kWords], kLineBytes);
                __asm__ volatile("tilezero %%tmm0\n\ttdpbsud %%tmm2, %%tmm1, %%tmm0\n\ttilestored %%tmm0, (%0,%1,1)"
                                 :
                                 : "r"(products[half]), "r"(kLineBytes)
                                 : "memory");
            }
            const int count = rows - tile < kTileRows ? rows - tile : kTileRows;
            for (int r = 0; r < count; ++r) {
                const BlockFacts<kDigits, kHalves>& facts = x.facts[x.at(block, first_row + tile + r)];
                UnitBlocks<Codes, kScaling>::add(
                    (*sums)[tile + r][0], facts, scales, units->a.groups.has_offsets, [&](int d, int half) {
                        return facts.starts[d][half] +
                               *reinterpret_cast<const IntVec*>(products[half][r * kDigits + d]);
                    });
            }
        }
    }
};

// As linear, but uses tiles if there are enough rows to fill them.
void linear_amx(const LinearArgs& a) {
    const bool has_digits = a.type == WeightType::int8 || (a.type == WeightType::int4 && !a.groups.values);
    if (!has_digits || a.rows <= 2) return linear(a);
    linear_digits<InTiles>(a);
    __asm__ volatile("tilerelease");
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
