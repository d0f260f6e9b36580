// Multiplies rows by packed weights. Part of kernels.inl, which includes it.
//
// All types work in the same way: a line of 64 bytes of weights becomes a few vectors of floats in registers, and every
// row's sums take them in the order of the inputs.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

constexpr std::size_t kLineBytes = 64;

// The types of weights. A line holds kInputs inputs; load() gives the weights of kWidth outputs from `lane` on for one
// input.
struct Float32 {
    static constexpr int kInputs = 1;
    static ALWAYS_INLINE Vec load(const char* line, int /*input*/, int lane) {
        return *reinterpret_cast<const Vec*>(line + lane * 4);
    }
};

struct BFloat16 {
    static constexpr int kInputs = 2;
    static ALWAYS_INLINE Vec load(const char* line, int input, int lane) {
        const UintVec pairs = *reinterpret_cast<const UintVec*>(line + lane * 4);
        const UintVec bits = input == 0 ? pairs << 16 : pairs & 0xffff0000u;
        return __builtin_bit_cast(Vec, bits);
    }
};

struct Float16 {
    static constexpr int kInputs = 2;
    static ALWAYS_INLINE Vec load(const char* line, int input, int lane) {
        return floats_of_float16(line + input * kLanes * 2 + lane * 2);
    }
};

// Activations are laid out anew in pieces of kPiece inputs, with a fixed distance between the rows of a piece. So the
// inner loop reaches all rows from one pointer: [k / kPiece][rows][kPieceStride]. The last line's missing inputs are 0;
// so are the lead and the last group's missing inputs of grouped weights.
constexpr int kPiece = kLinearPiece;
constexpr int kPieceStride = kLinearPieceStride;
constexpr int kMaxInputs = 4; // in a line

ALWAYS_INLINE float* laid_out(const LinearArgs& a, int piece, int row) {
    return a.scratch +
           (static_cast<std::size_t>(piece) * static_cast<std::size_t>(a.rows) + static_cast<std::size_t>(row)) *
               kPieceStride;
}

void lay_out(const LinearArgs& a) {
    const int end = a.groups.lead + a.k, unit = a.groups.size > 0 ? GroupedUnit::whole(a.groups) : kMaxInputs;
    for (int piece = 0, k = 0; k < end; ++piece, k += kPiece) {
        const int count = end - k < kPiece ? end - k : kPiece, lead = k < a.groups.lead ? a.groups.lead - k : 0;
        for (int r = 0; r < a.rows; ++r) {
            const float* from = a.x + static_cast<std::size_t>(r) * a.x_stride + (k - a.groups.lead);
            float* to = laid_out(a, piece, r);
            int i = 0;
            for (; i < lead; ++i)
                to[i] = 0;
            for (; a.order && i < count; ++i)
                to[i] = from[a.order[k + i] - k];
            for (; i + kWidth <= count; i += kWidth)
                *reinterpret_cast<Vec*>(to + i) = *reinterpret_cast<const Vec*>(from + i);
            for (; i < count; ++i)
                to[i] = from[i];
            for (; i % unit != 0; ++i)
                to[i] = 0;
        }
    }
}

// A vector's worth of LaneStats. All lanes count against one maximum, which seldom rises. So usually one exponential
// per logit is all the work.
struct RunningSums {
    Vec top, sum, shifted;

    ALWAYS_INLINE void raise(Vec x) {
        const Vec largest = larger(x, top);
        if (!any_greater(largest, top)) return;
        const Vec risen = splat(max_lanes(largest));
        const Vec fall = larger(top - risen, splat(kLowestExponent)), keep = exp_in_range(fall);
        shifted = (shifted + fall * sum) * keep;
        sum *= keep;
        top = risen;
    }
    ALWAYS_INLINE void add(Vec x) {
        const Vec d = larger(x - top, splat(kLowestExponent)), e = exp_in_range(d);
        sum += e;
        shifted += d * e;
    }
};

// Adds the first `counted` outputs of some units to a row's running sums, those from `lane` on in each unit. Works
// vector by vector, for any number of units.
ALWAYS_INLINE void take_lanes(LaneStats& stats, int lane, const float* x, int counted) {
    RunningSums sums = {*reinterpret_cast<const Vec*>(stats.max + lane),
                        *reinterpret_cast<const Vec*>(stats.sum_exp + lane),
                        *reinterpret_cast<const Vec*>(stats.sum_shifted_exp + lane)};
    Vec largest = sums.top;
    for (int i = lane; i + kWidth <= counted; i += kLanes)
        largest = larger(*reinterpret_cast<const Vec*>(x + i), largest);
    const bool rises = any_greater(largest, sums.top);
    int i = lane;
    for (; i + kWidth <= counted; i += kLanes) {
        const Vec whole = *reinterpret_cast<const Vec*>(x + i);
        if (rises) sums.raise(whole);
        sums.add(whole);
    }
    if (i < counted) {
        Vec rest = splat(kMasked);
        for (int j = 0; j < counted - i; ++j)
            rest[j] = x[i + j];
        sums.raise(rest);
        sums.add(rest);
    }
    *reinterpret_cast<Vec*>(stats.max + lane) = sums.top;
    *reinterpret_cast<Vec*>(stats.sum_exp + lane) = sums.sum;
    *reinterpret_cast<Vec*>(stats.sum_shifted_exp + lane) = sums.shifted;
}

// The same for all rows of a block that has been written. Outputs from stats_outputs on do not count. A function of its
// own, so that the blocks' sums need not outlive the writing.
__attribute__((noinline)) void take_outputs(const LinearArgs& a, int unit, int units, int first_row, int rows) {
    const int left = a.stats_outputs - unit * kLanes, counted = left < units * kLanes ? left : units * kLanes;
    for (int row = first_row; row < first_row + rows; ++row) {
        const float* x = a.y + static_cast<std::size_t>(row) * a.y_stride + unit * kLanes;
        for (int lane = 0; lane < kLanes; lane += kWidth)
            take_lanes(a.stats[row], lane, x, counted);
    }
}

// Rounds a product by itself, so that no block fuses it into a multiply-add while another does not.
ALWAYS_INLINE Vec rounded(Vec product) {
#if defined(__x86_64__)
    __asm__("" : "+v"(product));
#endif
    return product;
}

// Writes one block's sums to y.
template <bool kScaled, int kRows, int kVectors>
ALWAYS_INLINE void put_outputs(const LinearArgs& a, int unit, int first_row, Vec (&sums)[kRows][kVectors]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
            const int output = unit * kLanes + v * kWidth;
            Vec* out = reinterpret_cast<Vec*>(a.y + static_cast<std::size_t>(first_row + r) * a.y_stride + output);
            if constexpr (kScaled) sums[r][v] = rounded(sums[r][v] * *reinterpret_cast<const Vec*>(a.scales + output));
            *out = a.add ? *out + sums[r][v] : sums[r][v];
        }
    }
    if (a.stats) take_outputs(a, unit, kVectors * kWidth / kLanes, first_row, kRows);
}

// Multiplies rows [first_row, first_row + kRows) with units [unit, unit + kUnits). Registers hold the sums while the
// lines run over all of K. Each unit is a stream that is read once and prefetched kLookAhead lines ahead. Near its end,
// the prefetch takes the first lines of the next units.
template <typename Weight, int kRows, int kUnits> void linear_block(const LinearArgs& a, int unit, int first_row) {
    constexpr int kVectors = kUnits * kLanes / kWidth, kLookAhead = 32, kPieceLines = kPiece / Weight::kInputs;
    const int lines = (a.k + Weight::kInputs - 1) / Weight::kInputs;
    const std::size_t unit_bytes = static_cast<std::size_t>(lines) * kLineBytes;
    const char* w = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
    const int turn = lines > kLookAhead ? lines - kLookAhead : 0; // from here on the next units are prefetched
    Vec sums[kRows][kVectors] = {};
    for (int line = 0; line < lines;) {
        const int piece = line / kPieceLines;
        int end = (piece + 1) * kPieceLines < lines ? (piece + 1) * kPieceLines : lines;
        if (line < turn && turn < end) end = turn;
        const float* x = laid_out(a, piece, first_row) + line % kPieceLines * Weight::kInputs;
        const char* ahead = w + kLookAhead * kLineBytes + (line < turn ? 0 : (kUnits - 1) * unit_bytes);
        for (; line < end; ++line, x += Weight::kInputs, w += kLineBytes, ahead += kLineBytes) {
#pragma GCC unroll 4
            for (int u = 0; u < kUnits; ++u)
                __builtin_prefetch(ahead + static_cast<std::size_t>(u) * unit_bytes);
#pragma GCC unroll 4
            for (int input = 0; input < Weight::kInputs; ++input) {
                Vec weight[kVectors];
#pragma GCC unroll 8
                for (int v = 0; v < kVectors; ++v)
                    weight[v] = Weight::load(w + static_cast<std::size_t>(v * kWidth / kLanes) * unit_bytes, input,
                                             v * kWidth % kLanes);
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r) {
                    const Vec broadcast = splat(x[r * kPieceStride + input]);
#pragma GCC unroll 8
                    for (int v = 0; v < kVectors; ++v)
                        sums[r][v] += broadcast * weight[v];
                }
            }
        }
    }
    put_outputs<false, kRows, kVectors>(a, unit, first_row, sums);
}

// Calls the block of exactly `rows` rows, 1 <= rows <= kRows.
template <typename Block, int kUnits, int kRows>
ALWAYS_INLINE void linear_exact(const LinearArgs& a, int unit, int first_row, int rows) {
    if constexpr (kRows == 1) {
        Block::template block<1, kUnits>(a, unit, first_row);
    } else {
        if (rows == kRows) return Block::template block<kRows, kUnits>(a, unit, first_row);
        linear_exact<Block, kUnits, kRows - 1>(a, unit, first_row, rows);
    }
}

// Multiplies all units, kUnits at a time and the rest one by one. Rows go in even blocks (16 rows as 8 and 8, not as 14
// and 2).
template <typename Block, int kUnits, int kMaxRows> void linear_units(const LinearArgs& a) {
    const int blocks = (a.rows + kMaxRows - 1) / kMaxRows;
    for (int unit = 0; unit < a.units;) {
        const bool whole = unit + kUnits <= a.units;
        for (int block = 0, row = 0; block < blocks; ++block) {
            const int rows = (a.rows - row + blocks - block - 1) / (blocks - block);
            if (whole)
                linear_exact<Block, kUnits, kMaxRows>(a, unit, row, rows);
            else
                linear_exact<Block, 1, kMaxRows>(a, unit, row, rows);
            row += rows;
        }
        unit += whole ? kUnits : 1;
    }
}

template <typename Weight> struct Floats {
    template <int kRows, int kUnits> static ALWAYS_INLINE void block(const LinearArgs& a, int unit, int first_row) {
        linear_block<Weight, kRows, kUnits>(a, unit, first_row);
    }
};

// Takes as many units at once as registers hold sums for, for all rows: so each weight is read once.
template <typename Block> void linear_blocks(const LinearArgs& a) {
#if defined(__AVX512F__)
    if (a.rows <= 6) return linear_units<Block, 4, 6>(a);
    if (a.rows <= 9) return linear_units<Block, 3, 9>(a);
    if (a.rows == 15 || a.rows == 16) return linear_units<Block, 1, 16>(a);
    linear_units<Block, 2, 14>(a);
#elif defined(__AVX2__)
    if (a.rows <= 2) return linear_units<Block, 2, 2>(a);
    linear_units<Block, 1, 6>(a);
#else
    linear_units<Block, 1, 3>(a);
#endif
}

template <typename Weight> void linear_typed(const LinearArgs& a) {
    lay_out(a);
    linear_blocks<Floats<Weight>>(a);
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET

// clang-format off
#include "model/cpu/linear_groups.inl"
#include "model/cpu/linear_digits.inl"
// clang-format on

namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

void linear(const LinearArgs& a) {
    switch (a.type) {
    case WeightType::float32:
        return linear_typed<Float32>(a);
    case WeightType::bfloat16:
        return linear_typed<BFloat16>(a);
    case WeightType::float16:
        return linear_typed<Float16>(a);
    case WeightType::int8:
        return linear_digits<InVectors>(a);
    case WeightType::int4:
        return a.groups.values ? linear_groups<TableCodes>(a) : linear_digits<InVectors>(a);
    case WeightType::float8:
        return linear_groups<Float8Codes>(a);
    }
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET

#if defined(__AVX512VNNI__)
// clang-format off
#include "model/cpu/linear_amx.inl"
#include "model/cpu/linear_pairs.inl"
// clang-format on
#endif
