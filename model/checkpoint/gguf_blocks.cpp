#include "model/checkpoint/gguf_blocks.h"

#include "model/checkpoint/half.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace entrodraft::model {
namespace {

int byte_at(const std::byte* block, int at) {
    return static_cast<int>(block[at]);
}

float half_at(const std::byte* block, int at) {
    std::uint16_t bits;
    std::memcpy(&bits, block + at, 2);
    return from_float16(bits);
}

// Of q4_k: 6 bits of a scale, or of a minimum, of each of 8 groups, in 12 bytes: of the first four whole, of the others
// 4 bits in the last four bytes, and 2 above those of the first.
constexpr int kQ4Scales = 4, kQ4Codes = 16;
int q4_field(const std::byte* block, int group, bool is_minimum) {
    const std::byte* of = block + kQ4Scales;
    const int first = byte_at(of, group % 4 + (is_minimum ? 4 : 0));
    if (group < 4) return first & 63;
    return (byte_at(of, 4 + group) >> (is_minimum ? 4 : 0) & 15) | (first >> 6) << 4;
}

// A group whose scale is 0 is its minimum throughout: a scale so small that its codes do not count.
float q4_scale(const std::byte* block, int group) {
    const float scale = half_at(block, 0) * static_cast<float>(q4_field(block, group, false));
    return scale != 0 ? scale : half_at(block, 2) * static_cast<float>(q4_field(block, group, true)) * 0x1p-24f;
}

constexpr int kQ6High = 128, kQ6Scales = 192, kQ6Scale = 208;

// Of bytes one behind the other, the 4 bits from `shift` on.
void put_codes(const std::byte* from, int shift, int middle, int count, std::uint8_t* out) {
    for (int i = 0; i < count; ++i)
        out[i] = static_cast<std::uint8_t>((byte_at(from, i) >> shift & 15) - middle);
}

} // namespace

BlockShape block_shape(QuantizedForm form) {
    switch (form) {
    case QuantizedForm::q8_0:
        return {.inputs = 32, .bytes = 34, .group = 32, .bits = 8, .run = 32};
    case QuantizedForm::q4_0:
        return {.inputs = 32, .bytes = 18, .group = 32, .bits = 4, .run = 16};
    case QuantizedForm::mxfp4_blocks:
        return {.inputs = 32, .bytes = 17, .group = 32, .bits = 4, .run = 16, .values = CodeValues::float4};
    case QuantizedForm::q4_k:
        return {.inputs = 256, .bytes = 144, .group = 32, .bits = 4, .run = 32, .has_zeros = true};
    case QuantizedForm::q6_k:
        return {.inputs = 256, .bytes = 210, .group = 16, .bits = 8, .run = 32};
    default:
        return {};
    }
}

float block_scale(QuantizedForm form, const std::byte* block, int group) {
    if (form == QuantizedForm::mxfp4_blocks) return from_exponent(std::to_integer<std::uint8_t>(block[0]));
    if (form == QuantizedForm::q4_k) return q4_scale(block, group);
    if (form != QuantizedForm::q6_k) return half_at(block, 0);
    return half_at(block, kQ6Scale) * static_cast<float>(static_cast<std::int8_t>(block[kQ6Scales + group]));
}

float block_zero(QuantizedForm form, const std::byte* block, int group) {
    if (form != QuantizedForm::q4_k) return 0;
    const float minimum = half_at(block, 2) * static_cast<float>(q4_field(block, group, true));
    const float scale = q4_scale(block, group);
    return (scale != 0 ? minimum / scale : 0) - 8;
}

void read_block(QuantizedForm form, const std::byte* block, int first, int count, std::uint8_t* out) {
    const int run = block_shape(form).run;
    while (count > 0) {
        const int n = std::min(count, run - first % run);
        switch (form) {
        case QuantizedForm::q8_0:
            std::memcpy(out, block + 2 + first, static_cast<std::size_t>(n));
            break;
        case QuantizedForm::q4_0:
            put_codes(block + 2 + first % 16, first / 16 * 4, 8, n, out);
            break;
        case QuantizedForm::mxfp4_blocks:
            put_codes(block + 1 + first % 16, first / 16 * 4, 0, n, out);
            break;
        case QuantizedForm::q4_k:
            put_codes(block + kQ4Codes + first / 64 * 32 + first % 32, first / 32 % 2 * 4, 8, n, out);
            break;
        case QuantizedForm::q6_k: {
            const int half = first / 128, of_half = first % 128;
            const std::byte *low = block + half * 64 + of_half % 64, *high = block + kQ6High + half * 32 + of_half % 32;
            for (int i = 0; i < n; ++i)
                out[i] = static_cast<std::uint8_t>(
                    ((byte_at(low, i) >> of_half / 64 * 4 & 15) | (byte_at(high, i) >> of_half / 32 * 2 & 3) << 4) -
                    32);
            break;
        }
        default:
            throw std::logic_error("read_block: not in blocks");
        }
        first += n, count -= n, out += n;
    }
}

} // namespace entrodraft::model
