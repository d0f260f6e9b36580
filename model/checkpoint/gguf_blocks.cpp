#include "model/checkpoint/gguf_blocks.h"

#include "model/checkpoint/half.h"

#include <cstring>

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

} // namespace

BlockShape block_shape(QuantizedForm form) {
    switch (form) {
    case QuantizedForm::q8_0:
        return {32, 34, 32, 8};
    case QuantizedForm::q4_0:
        return {32, 18, 32, 4};
    case QuantizedForm::q4_k:
        return {256, 144, 32, 4, true};
    case QuantizedForm::q6_k:
        return {256, 210, 16, 8};
    default:
        return {};
    }
}

float block_scale(QuantizedForm form, const std::byte* block, int group) {
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

int block_code(QuantizedForm form, const std::byte* block, int input) {
    switch (form) {
    case QuantizedForm::q8_0:
        return static_cast<std::int8_t>(block[2 + input]);
    case QuantizedForm::q4_0:
        return (byte_at(block, 2 + input % 16) >> input / 16 * 4 & 15) - 8;
    case QuantizedForm::q4_k:
        return (byte_at(block, kQ4Codes + input / 64 * 32 + input % 32) >> input / 32 % 2 * 4 & 15) - 8;
    case QuantizedForm::q6_k: {
        const int half = input / 128, of_half = input % 128;
        const int low = byte_at(block, half * 64 + of_half % 64) >> of_half / 64 * 4 & 15;
        const int high = byte_at(block, kQ6High + half * 32 + of_half % 32) >> of_half / 32 * 2 & 3;
        return (low | high << 4) - 32;
    }
    default:
        return 0;
    }
}

} // namespace entrodraft::model
