// Multiplies rows of a prompt's chunk by bfloat16 weights, on processors where one instruction multiplies two pairs of
// bfloat16 numbers and adds both products. This doubles the arithmetic speed of linear.inl, with activations rounded to
// bfloat16. It uses the blocks of linear.inl: a line of weights already contains such pairs, and a row's sums take them
// in order.
//
// Rounded rows are laid out as [k / kPiece][rows][kPairStride] words of two inputs each. The instruction is written as
// assembly, so that nothing else is compiled for these processors.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

constexpr int kPairStride = kPieceStride / 2;

// A mask of the first `count` lanes; all lanes from 16 on.
ALWAYS_INLINE __mmask16 first_lanes(int count) {
    return static_cast<__mmask16>(count >= kWidth ? 0xffff : (1u << count) - 1);
}

ALWAYS_INLINE std::uint32_t* pairs_at(const LinearArgs& a, int piece, int row) {
    return reinterpret_cast<std::uint32_t*>(a.scratch) +
           (static_cast<std::size_t>(piece) * static_cast<std::size_t>(a.rows) + static_cast<std::size_t>(row)) *
               kPairStride;
}

// Rounds to nearest, ties to even; NaN stays NaN.
ALWAYS_INLINE __m256i rounded_to_bfloat16(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    const __m512i odd = _mm512_and_si512(_mm512_maskz_srli_epi32(0xffff, bits, 16), one);
    const __m512i near = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m512i kept = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), near, quiet);
    return _mm512_maskz_cvtepi32_epi16(0xffff, _mm512_maskz_srli_epi32(0xffff, kept, 16));
}

void lay_out_pairs(const LinearArgs& a) {
    for (int piece = 0, k = 0; k < a.k; ++piece, k += kPiece) {
        const int count = a.k - k < kPiece ? a.k - k : kPiece;
        for (int r = 0; r < a.rows; ++r) {
            const float* from = a.x + static_cast<std::size_t>(r) * a.x_stride + k;
            std::uint32_t* to = pairs_at(a, piece, r);
            for (int i = 0; i < count; i += kWidth)
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i / 2),
                                    rounded_to_bfloat16(_mm512_maskz_loadu_ps(first_lanes(count - i), from + i)));
        }
    }
}

// sums += products of both inputs of every lane's pairs.
ALWAYS_INLINE void add_products(Vec& sums, UintVec inputs, UintVec weights) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(inputs), "v"(weights));
}

struct Pairs {
    // As linear_block.
    template <int kRows, int kUnits> static void block(const LinearArgs& a, int unit, int first_row) {
        constexpr int kLookAhead = 32, kPieceLines = kPiece / 2;
        const int lines = (a.k + 1) / 2;
        const std::size_t unit_bytes = static_cast<std::size_t>(lines) * kLineBytes;
        const char* w = static_cast<const char*>(a.w) + static_cast<std::size_t>(unit) * unit_bytes;
        Vec sums[kRows][kUnits] = {};
        for (int line = 0; line < lines;) {
            const int piece = line / kPieceLines;
            const int end = (piece + 1) * kPieceLines < lines ? (piece + 1) * kPieceLines : lines;
            const std::uint32_t* x = pairs_at(a, piece, first_row);
            for (; line < end; ++line, ++x, w += kLineBytes) {
                UintVec weights[kUnits];
#pragma GCC unroll 4
                for (int u = 0; u < kUnits; ++u) {
                    const char* at = w + static_cast<std::size_t>(u) * unit_bytes;
                    __builtin_prefetch(at + kLookAhead * kLineBytes);
                    weights[u] = *reinterpret_cast<const UintVec*>(at);
                }
#pragma GCC unroll 16
                for (int r = 0; r < kRows; ++r) {
                    const UintVec inputs = x[r * kPairStride] - UintVec{};
#pragma GCC unroll 4
                    for (int u = 0; u < kUnits; ++u)
                        add_products(sums[r][u], inputs, weights[u]);
                }
            }
        }
        put_outputs<false, kRows, kUnits>(a, unit, first_row, sums);
    }
};

// As linear_amx or linear, but uses pairs if rounding is allowed.
template <void (*kOthers)(const LinearArgs& args)> void linear_pairs(const LinearArgs& a) {
    if (!a.is_prompt || a.type != WeightType::bfloat16) return kOthers(a);
    lay_out_pairs(a);
    linear_blocks<Pairs>(a);
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
