// Layouts follow ggml's ggml-common.h. Every product here is exact in float32 (a half has 11 bits, a group's scale 6
// and a code 8), so the order in which a program multiplies does not matter.
#include "model/files/gguf_blocks.h"

#include "model/files/gguf_grids.h"
#include "model/files/half.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace entrodraft::model {
namespace {

int byte_at(const std::byte* block, int at) {
    return static_cast<int>(block[at]);
}

template <typename T> T word_at(const std::byte* block, int at) { // little-endian, as the machines are
    T word;
    std::memcpy(&word, block + at, sizeof word);
    return word;
}

float half_at(const std::byte* block, int at) {
    return from_float16(word_at<std::uint16_t>(block, at));
}

int nibble_at(const std::byte* block, int at, int which) {
    return byte_at(block, at + which / 2) >> which % 2 * 4 & 15;
}

std::uint8_t code_of(int code) {
    return static_cast<std::uint8_t>(code);
}

// ---- blocks of 32 ----

// Writes each byte's `bits` bits from `shift` on, less `middle`.
void put_codes(const std::byte* from, int shift, int bits, int middle, int count, std::uint8_t* out) {
    for (int i = 0; i < count; ++i)
        out[i] = code_of((byte_at(from, i) >> shift & ((1 << bits) - 1)) - middle);
}

// Codes have 4 bits; the first half of them is in the bytes' lower halves.
void put_halves(const std::byte* from, int middle, int count, std::uint8_t* out) {
    put_codes(from, 0, 4, middle, count / 2, out);
    put_codes(from, 4, 4, middle, count / 2, out + count / 2);
}

// The fifth bit of each code, from `high` on, goes above the four bits from `low` on.
void put_5_bits(const std::byte* block, int high, int low, int middle, std::uint8_t* out) {
    put_halves(block + low, 0, 32, out);
    const auto bits = word_at<std::uint32_t>(block, high);
    for (int i = 0; i < 32; ++i)
        out[i] = code_of((out[i] | (bits >> i & 1) << 4) - middle);
}

void put_values(const std::int8_t (&values)[16], int count, std::uint8_t* out) {
    for (int i = 0; i < count; ++i)
        out[i] = code_of(values[out[i]]);
}

constexpr std::int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// The table, as codes of 8 bits without a sign.
constexpr std::array<std::uint8_t, 16> kNonLinearCodes = [] {
    std::array<std::uint8_t, 16> codes{};
    for (std::size_t i = 0; i < codes.size(); ++i)
        codes[i] = static_cast<std::uint8_t>(kNonLinear[i] + 128);
    return codes;
}();
constexpr std::int8_t kFloat4Twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Returns half the power of two with this exponent + 128 (e8m0, halved).
GroupFacts half_exponent(const std::byte* block, int) {
    const std::uint32_t exponent = static_cast<std::uint32_t>(byte_at(block, 0));
    return {std::bit_cast<float>(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23)};
}
// Returns half a float8 without a sign (bias 7). Its largest bits also mean 0.
GroupFacts half_float8(const std::byte* block, int group) {
    const int bits = byte_at(block, group);
    if (bits == 0x7f) return {};
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const float value = exponent == 0 ? static_cast<float>(fraction) * 0x1p-9f
                                      : static_cast<float>(8 + fraction) * 0x1p-10f * static_cast<float>(1 << exponent);
    return {value * 0.5f};
}

void codes_of_q4_0(const std::byte* block, int, std::uint8_t* out) {
    put_halves(block + 2, 8, 32, out);
}
void codes_of_q4_1(const std::byte* block, int, std::uint8_t* out) {
    put_halves(block + 4, 8, 32, out);
}
void codes_of_q5_0(const std::byte* block, int, std::uint8_t* out) {
    put_5_bits(block, 2, 6, 16, out);
}
void codes_of_q5_1(const std::byte* block, int, std::uint8_t* out) {
    put_5_bits(block, 4, 8, 0, out);
}
void codes_of_q8_0(const std::byte* block, int, std::uint8_t* out) {
    std::memcpy(out, block + 2, 32);
}
void codes_of_iq4_nl(const std::byte* block, int, std::uint8_t* out) {
    put_halves(block + 2, 0, 32, out);
    put_values(kNonLinear, 32, out);
}
void codes_of_mxfp4(const std::byte* block, int, std::uint8_t* out) {
    put_halves(block + 1, 0, 32, out);
}
void codes_of_nvfp4(const std::byte* block, int group, std::uint8_t* out) {
    put_halves(block + 4 + group * 8, 0, 16, out);
    put_values(kFloat4Twice, 16, out);
}

// ---- blocks of 256 with scales of 4 to 8 bits ----

// Returns the 6 bits of a scale, or of a minimum, of one of 8 groups in 12 bytes. The first four groups have them in
// one byte. The others have 4 bits in the last four bytes, and 2 bits above those of the first groups.
int six_bits(const std::byte* of, int group, bool is_minimum) {
    const int first = byte_at(of, group % 4 + (is_minimum ? 4 : 0));
    if (group < 4) return first & 63;
    return (byte_at(of, 4 + group) >> (is_minimum ? 4 : 0) & 15) | (first >> 6) << 4;
}

GroupSteps steps_of_q4_k(const std::byte* block, int group) {
    return {six_bits(block + 4, group, false), six_bits(block + 4, group, true)};
}
void codes_of_q4_k(const std::byte* block, int group, std::uint8_t* out) {
    put_codes(block + 16 + group / 2 * 32, group % 2 * 4, 4, 8, 32, out);
}
void codes_of_q5_k(const std::byte* block, int group, std::uint8_t* out) {
    put_codes(block + 48 + group / 2 * 32, group % 2 * 4, 4, 0, 32, out);
    for (int i = 0; i < 32; ++i)
        out[i] = code_of(out[i] | (byte_at(block, 16 + i) >> group & 1) << 4);
}

// Codes of 2 bits in 64 bytes: groups of 16, two next to each other in 32 bytes, then their next 2 bits.
void put_2_bits(const std::byte* from, int group, int middle, std::uint8_t* out) {
    put_codes(from + group / 8 * 32 + group % 2 * 16, group % 8 / 2 * 2, 2, middle, 16, out);
}

GroupSteps steps_of_q2_k(const std::byte* block, int group) {
    return {byte_at(block, group) & 15, byte_at(block, group) >> 4};
}
void codes_of_q2_k(const std::byte* block, int group, std::uint8_t* out) {
    put_2_bits(block + 16, group, 0, out);
}

GroupSteps steps_of_q3_k(const std::byte* block, int group) {
    const int low = byte_at(block, 96 + group % 8) >> group / 8 * 4 & 15;
    const int high = byte_at(block, 104 + group % 4) >> group / 4 * 2 & 3;
    return {(low | high << 4) - 32};
}
void codes_of_q3_k(const std::byte* block, int group, std::uint8_t* out) {
    put_2_bits(block + 32, group, 4, out);
    for (int i = 0; i < 16; ++i)
        out[i] = code_of(out[i] + (byte_at(block, group % 2 * 16 + i) >> group / 2 & 1) * 4);
}

GroupSteps steps_of_q6_k(const std::byte* block, int group) {
    return {word_at<std::int8_t>(block, 192 + group)};
}
void codes_of_q6_k(const std::byte* block, int group, std::uint8_t* out) {
    const int half = group / 8, of_half = group % 8 * 16;
    const int low = half * 64 + of_half % 64, high = 128 + half * 32 + of_half % 32;
    for (int i = 0; i < 16; ++i) {
        const int four = byte_at(block, low + i) >> of_half / 64 * 4 & 15;
        out[i] = code_of((four | (byte_at(block, high + i) >> of_half / 32 * 2 & 3) << 4) - 32);
    }
}

GroupSteps steps_of_iq4_xs(const std::byte* block, int group) {
    const int high = word_at<std::uint16_t>(block, 2) >> group * 2 & 3;
    return {(nibble_at(block, 4, group) | high << 4) - 32};
}
void codes_of_iq4_xs(const std::byte* block, int group, std::uint8_t* out) {
    put_halves(block + 8 + group * 16, 0, 32, out);
    put_values(kNonLinear, 32, out);
}

// ---- three values: -1, 0 and 1 ----

// A byte holds five values, as a fraction of 256 in base 3: first 32 bytes, then 16, then four values in each of 4.
void codes_of_tq1_0(const std::byte* block, int, std::uint8_t* out) {
    struct Run {
        int begin, bytes, of_byte;
    };
    for (const Run& run : {Run{0, 32, 5}, Run{32, 16, 5}, Run{48, 4, 4}})
        for (int digit = 0, power = 1; digit < run.of_byte; ++digit, power *= 3)
            for (int i = 0; i < run.bytes; ++i)
                *out++ = code_of((byte_at(block, run.begin + i) * power % 256 * 3 >> 8) - 1);
}

void codes_of_tq2_0(const std::byte* block, int, std::uint8_t* out) {
    for (int group = 0; group < 16; ++group)
        put_2_bits(block, group, 1, out + group * 16);
}

// ---- one and two bits, in the order of inputs ----

// A bit of 0 is -1.
void codes_of_q1_0(const std::byte* block, int, std::uint8_t* out) {
    for (int i = 0; i < 128; ++i)
        out[i] = code_of((byte_at(block, 2 + i / 8) >> i % 8 & 1) * 2 - 1);
}

void codes_of_q2_0(const std::byte* block, int, std::uint8_t* out) {
    for (int i = 0; i < 64; ++i)
        out[i] = code_of((byte_at(block, 2 + i / 4) >> i % 4 * 2 & 3) - 1);
}

// ---- points of grids ----

// Writes eight values of 2 bits each, or four of 4 bits, with the signs in `signs`.
void put_point(std::uint32_t point, const int* values, int bits, int signs, std::uint8_t* out) {
    for (int i = 0; i < 16 / bits; ++i, point >>= bits) {
        const int value = values[point & ((1u << bits) - 1)];
        out[i] = code_of((signs >> i & 1) != 0 ? -value : value);
    }
}
constexpr int kIq2Values[3] = {8, 25, 43};
constexpr int kIq3XxsValues[8] = {4, 12, 20, 28, 36, 44, 52, 62}, kIq3SValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};

// Signs have 7 bits; the eighth makes the number of ones even.
int even_signs(std::uint32_t seven) {
    return static_cast<int>(seven | static_cast<std::uint32_t>(std::popcount(seven) & 1) << 7);
}

float half_more(std::uint32_t scale) {
    return 0.5f + static_cast<float>(scale);
}

GroupFacts facts_of_iq2_xxs(const std::byte* block, int group) {
    return {half_at(block, 0) * half_more(word_at<std::uint32_t>(block, 6 + group * 8) >> 28) * 0.25f};
}
void codes_of_iq2_xxs(const std::byte* block, int group, std::uint8_t* out) {
    const int at = 2 + group * 8;
    const auto signs = word_at<std::uint32_t>(block, at + 4);
    for (int i = 0; i < 4; ++i)
        put_point(kGridIq2Xxs[byte_at(block, at + i)], kIq2Values, 2, even_signs(signs >> 7 * i & 127), out + i * 8);
}

GroupFacts facts_of_iq2_xs(const std::byte* block, int group) {
    return {half_at(block, 0) * half_more(static_cast<std::uint32_t>(nibble_at(block, 66, group))) * 0.25f};
}
void codes_of_iq2_xs(const std::byte* block, int group, std::uint8_t* out) {
    for (int i = 0; i < 2; ++i) {
        const auto word = word_at<std::uint16_t>(block, 2 + (group * 2 + i) * 2);
        put_point(kGridIq2Xs[word & 511], kIq2Values, 2, even_signs(word >> 9u), out + i * 8);
    }
}

GroupFacts facts_of_iq2_s(const std::byte* block, int group) {
    return {half_at(block, 0) * half_more(static_cast<std::uint32_t>(nibble_at(block, 74, group))) * 0.25f};
}
void codes_of_iq2_s(const std::byte* block, int group, std::uint8_t* out) {
    for (int i = 0; i < 2; ++i) {
        const int eight = group * 2 + i, high = byte_at(block, 66 + eight / 4) >> eight % 4 * 2 & 3;
        put_point(kGridIq2S[byte_at(block, 2 + eight) | high << 8], kIq2Values, 2, byte_at(block, 34 + eight),
                  out + i * 8);
    }
}

GroupFacts facts_of_iq3_xxs(const std::byte* block, int group) {
    return {half_at(block, 0) * half_more(word_at<std::uint32_t>(block, 66 + group * 4) >> 28) * 0.5f};
}
void codes_of_iq3_xxs(const std::byte* block, int group, std::uint8_t* out) {
    const auto signs = word_at<std::uint32_t>(block, 66 + group * 4);
    for (int i = 0; i < 8; ++i)
        put_point(kGridIq3Xxs[byte_at(block, 2 + group * 8 + i)], kIq3XxsValues, 4,
                  even_signs(signs >> i / 2 * 7 & 127) >> i % 2 * 4, out + i * 4);
}

GroupFacts facts_of_iq3_s(const std::byte* block, int group) {
    return {half_at(block, 0) * static_cast<float>(1 + 2 * nibble_at(block, 106, group))};
}
void codes_of_iq3_s(const std::byte* block, int group, std::uint8_t* out) {
    for (int i = 0; i < 8; ++i) {
        const int high = byte_at(block, 66 + group) >> i & 1;
        put_point(kGridIq3S[byte_at(block, 2 + group * 8 + i) | high << 8], kIq3SValues, 4,
                  byte_at(block, 74 + group * 4 + i / 2) >> i % 2 * 4, out + i * 4);
    }
}

// IQ1 adds an eighth to the point's values -1, 0 and 1, or subtracts it, so codes are eight times the values.
void put_iq1(std::uint32_t point, bool is_less, std::uint8_t* out) {
    const int eighth = is_less ? -1 : 1, values[3] = {eighth - 8, eighth, eighth + 8};
    put_point(kGridIq1[point], values, 2, 0, out);
}

GroupFacts facts_of_iq1_s(const std::byte* block, int group) {
    const int scale = word_at<std::uint16_t>(block, 34 + group * 2) >> 12 & 7;
    return {half_at(block, 0) * static_cast<float>(2 * scale + 1) * 0.125f};
}
void codes_of_iq1_s(const std::byte* block, int group, std::uint8_t* out) {
    const std::uint32_t high = word_at<std::uint16_t>(block, 34 + group * 2);
    for (int i = 0; i < 4; ++i)
        put_iq1(word_at<std::uint8_t>(block, 2 + group * 4 + i) | (high >> i * 3 & 7) << 8, (high & 0x8000u) != 0,
                out + i * 8);
}

// The half lies in the upper 4 bits of the scales' words.
GroupFacts facts_of_iq1_m(const std::byte* block, int group) {
    std::uint32_t half = 0;
    for (int i = 0; i < 4; ++i)
        half |= static_cast<std::uint32_t>(word_at<std::uint16_t>(block, 48 + i * 2) >> 12) << i * 4;
    const int scale = word_at<std::uint16_t>(block, 48 + group / 4 * 2) >> group % 4 * 3 & 7;
    return {from_float16(static_cast<std::uint16_t>(half)) * static_cast<float>(2 * scale + 1) * 0.125f};
}
void codes_of_iq1_m(const std::byte* block, int group, std::uint8_t* out) {
    for (int i = 0; i < 2; ++i) {
        const auto high = static_cast<std::uint32_t>(nibble_at(block, 32, group * 2 + i));
        put_iq1(word_at<std::uint8_t>(block, group * 2 + i) | (high & 7) << 8, (high & 8) != 0, out + i * 8);
    }
}

constexpr BlockType kTypes[] = {
    {0, "F32", 1, 4},
    {1, "F16", 1, 2},
    {2, "Q4_0", 32, 18, 32, 4, codes_of_q4_0, {4, 8}},
    {3, "Q4_1", 32, 20, 32, 4, codes_of_q4_1, {4, 8, 0, 2}, nullptr, 8},
    {4, "Q4_2"},
    {5, "Q4_3"},
    {6, "Q5_0", 32, 22, 32, 8, codes_of_q5_0, {5, 16}},
    {7, "Q5_1", 32, 24, 32, 8, codes_of_q5_1, {5, 0, 0, 2}},
    {8, "Q8_0", 32, 34, 32, 8, codes_of_q8_0, {8, 128}},
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84, 16, 4, codes_of_q2_k, {2, 0, 80, 82, steps_of_q2_k}},
    {11, "Q3_K", 256, 110, 16, 4, codes_of_q3_k, {3, 4, 108, -1, steps_of_q3_k}},
    {12, "Q4_K", 256, 144, 32, 4, codes_of_q4_k, {4, 8, 0, 2, steps_of_q4_k}, nullptr, 8},
    {13, "Q5_K", 256, 176, 32, 8, codes_of_q5_k, {5, 0, 0, 2, steps_of_q4_k}},
    {14, "Q6_K", 256, 210, 16, 8, codes_of_q6_k, {6, 32, 208, -1, steps_of_q6_k}},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66, 32, 8, codes_of_iq2_xxs, {}, facts_of_iq2_xxs},
    {17, "IQ2_XS", 256, 74, 16, 8, codes_of_iq2_xs, {}, facts_of_iq2_xs},
    {18, "IQ3_XXS", 256, 98, 32, 8, codes_of_iq3_xxs, {}, facts_of_iq3_xxs},
    {19, "IQ1_S", 256, 50, 32, 8, codes_of_iq1_s, {}, facts_of_iq1_s},
    {20, "IQ4_NL", 32, 18, 32, 8, codes_of_iq4_nl, {4, 128, 0, -1, nullptr, kNonLinearCodes.data()}},
    {21, "IQ3_S", 256, 110, 32, 8, codes_of_iq3_s, {}, facts_of_iq3_s},
    {22, "IQ2_S", 256, 82, 16, 8, codes_of_iq2_s, {}, facts_of_iq2_s},
    {23, "IQ4_XS", 256, 136, 32, 8, codes_of_iq4_xs, {4, 128, 0, -1, steps_of_iq4_xs, kNonLinearCodes.data()}},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56, 16, 8, codes_of_iq1_m, {}, facts_of_iq1_m},
    {30, "BF16", 1, 2},
    {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"},
    {34, "TQ1_0", 256, 54, 256, 4, codes_of_tq1_0, {2, 1, 52}},
    {35, "TQ2_0", 256, 66, 256, 4, codes_of_tq2_0, {2, 1, 64}},
    {36, "IQ4_NL_4_4"},
    {37, "IQ4_NL_4_8"},
    {38, "IQ4_NL_8_8"},
    {39, "MXFP4", 32, 17, 32, 4, codes_of_mxfp4, {}, half_exponent, 0, CodeValues::float4_twice},
    {40, "NVFP4", 64, 36, 16, 8, codes_of_nvfp4, {}, half_float8},
    {41, "Q1_0", 128, 18, 128, 4, codes_of_q1_0, {2, 1}},
    {42, "Q2_0", 64, 18, 64, 4, codes_of_q2_0, {2, 1}},
};

} // namespace

double BlockType::held_bits() const {
    const int kinds = has_offsets() ? 2 : 1;
    if (steps.bits == 0) return bits + 32.0 / group; // plus a float per group
    if (!steps.of) return steps.bits + 16.0 * kinds / group;
    const double of_steps = steps.bits == 2 ? 8 : 8 * kinds; // both share a byte
    return steps.bits + of_steps / group + 16.0 * kinds / inputs;
}

GroupFacts facts_of(const BlockType& type, const std::byte* block, int group) {
    const BlockSteps& by = type.steps;
    if (by.bits == 0) return type.facts(block, group);
    const GroupSteps steps = by.of ? by.of(block, group) : GroupSteps{1, -1};
    return {half_at(block, by.half) * static_cast<float>(steps.scale),
            type.has_offsets() ? half_at(block, by.offset_half) * static_cast<float>(steps.offset) : 0};
}

const BlockType* block_type(std::uint32_t number) {
    const auto* found = std::ranges::find(kTypes, number, &BlockType::number);
    return found == std::end(kTypes) ? nullptr : found;
}

} // namespace entrodraft::model
