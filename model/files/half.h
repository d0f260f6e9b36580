// Converts between float32, the two 16-bit formats of checkpoints, and float8 (e4m3 without infinities, as in
// Micikevicius et al. 2022 and the OCP's standard). Conversions are exact, or round to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace entrodraft::model {

// They have no branches and compare only signed numbers, so that loops over them become vectors.

inline float from_bfloat16(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool is_number = static_cast<std::int32_t>(bits & 0x7fffffffu) <= 0x7f800000;
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40u; // NaN stays NaN
    return static_cast<std::uint16_t>(is_number ? rounded : quiet);
}

inline float from_float16(std::uint16_t half) {
    const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    // Infinities and NaNs keep their fraction and get the exponent of all ones.
    const std::uint32_t special = static_cast<std::int32_t>(magnitude) >= (0x7c00 << 13) ? 0x7f800000u : 0u;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f) | special |
                                sign);
}

inline std::uint16_t to_float16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const auto size = static_cast<std::int32_t>(magnitude);
    const std::uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    // A subnormal half: an addition rounds at the right place.
    const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const std::uint32_t large = size > 0x7f800000 ? 0x7e00u : 0x7c00u; // NaN, or past the largest half
    const std::uint32_t finite = size < 0x38800000 ? small : normal;
    return static_cast<std::uint16_t>(sign | (size >= 0x477ff000 ? large : finite));
}

inline constexpr float kLargestFloat8 = 448;

inline float from_float8(std::uint8_t bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    const std::uint32_t special = magnitude == 0x7fu ? 0x7fc00000u : 0u;
    const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | special | sign);
}

// Values beyond kLargestFloat8 become kLargestFloat8 with their sign. NaN stays NaN.
inline std::uint8_t to_float8(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 24) & 0x80u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const auto size = static_cast<std::int32_t>(magnitude);
    const std::uint32_t normal = (magnitude + 0x7ffffu + ((magnitude >> 20) & 1u) - 0x3c000000u) >> 20;
    // A subnormal: an addition rounds at the right place, 2^-9.
    const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x46800000u;
    const std::uint32_t finite = size < 0x3c800000 ? small : normal;
    const std::uint32_t large = size > 0x7f800000 ? 0x7fu : 0x7eu;
    return static_cast<std::uint8_t>(sign | (size >= 0x43e00000 ? large : finite));
}

// Returns the power of two with this exponent + 127 (e8m0).
inline float from_exponent(std::uint8_t exponent) {
    const std::uint32_t bits = exponent == 0 ? 1u << 22 : static_cast<std::uint32_t>(exponent) << 23;
    return std::bit_cast<float>(exponent == 255 ? 0x7fc00000u : bits);
}

} // namespace entrodraft::model
