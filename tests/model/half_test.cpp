// All 65,536 patterns of both 16-bit formats, both ways, and every rounding border between two neighbours.
#include "model/files/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace half_test {

using namespace entrodraft::model;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A half by its definition: sign, 5 bits of exponent biased by 15, 10 bits of fraction.
float half_by_definition(unsigned bits) {
    const unsigned exponent = (bits >> 10) & 31U, fraction = bits & 1023U;
    const float sign = (bits & 0x8000U) != 0 ? -1.0F : 1.0F;
    if (exponent == 31) return fraction != 0 ? std::numeric_limits<float>::quiet_NaN() : sign * kInfinity;
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
    return sign * std::ldexp(static_cast<float>(1024U + fraction), static_cast<int>(exponent) - 25);
}

TEST(Float16, EveryPatternIsReadByItsDefinitionAndWrittenBack) {
    for (unsigned bits = 0; bits < 65536; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = from_float16(half), want = half_by_definition(bits);
        if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(value)) << bits;
            ASSERT_TRUE(std::isnan(from_float16(to_float16(value)))) << bits;
        } else {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(want)) << bits;
            ASSERT_EQ(to_float16(value), half) << bits;
        }
    }
}

TEST(BFloat16, EveryPatternIsTheUpperHalfOfAFloatAndIsWrittenBack) {
    for (unsigned bits = 0; bits < 65536; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = from_bfloat16(half);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
        if (std::isnan(value))
            ASSERT_TRUE(std::isnan(from_bfloat16(to_bfloat16(value)))) << bits;
        else
            ASSERT_EQ(to_bfloat16(value), half) << bits;
    }
}

// Between neighbours `low` and `low + 1`: the middle goes to the even one, and a hair off it to the nearer one.
template <typename To> void check_border(To to, float middle, std::uint16_t low, std::uint16_t sign) {
    const float signed_middle = sign != 0 ? -middle : middle;
    const float outward = sign != 0 ? -kInfinity : kInfinity;
    const auto even = static_cast<std::uint16_t>(low + (low & 1));
    ASSERT_EQ(to(signed_middle), even | sign) << low;
    ASSERT_EQ(to(std::nextafter(signed_middle, 0.0F)), low | sign) << low;
    ASSERT_EQ(to(std::nextafter(signed_middle, outward)), (low + 1) | sign) << low;
}

TEST(Float16, RoundsToTheNearestAndTiesToEvenBetweenAllNeighbours) {
    for (std::uint16_t low = 0; low < 0x7c00; ++low) {
        // Behind the largest half, the next one would be 2^16.
        const float above = low == 0x7bff ? 65536.0F : half_by_definition(low + 1U);
        const float middle = (half_by_definition(low) + above) / 2;
        for (const std::uint16_t sign : {std::uint16_t{0}, std::uint16_t{0x8000}})
            check_border(to_float16, middle, low, sign);
        if (HasFatalFailure()) return;
    }
    EXPECT_EQ(to_float16(1e30F), 0x7c00);
    EXPECT_EQ(to_float16(-kInfinity), 0xfc00);
    EXPECT_EQ(to_float16(1e-30F), 0);
    EXPECT_EQ(to_float16(-1e-30F), 0x8000);
}

TEST(BFloat16, RoundsToTheNearestAndTiesToEvenBetweenAllNeighbours) {
    for (std::uint16_t low = 0; low < 0x7f80; ++low) {
        const float middle = std::bit_cast<float>((static_cast<std::uint32_t>(low) << 16) | 0x8000U);
        for (const std::uint16_t sign : {std::uint16_t{0}, std::uint16_t{0x8000}})
            check_border(to_bfloat16, middle, low, sign);
        if (HasFatalFailure()) return;
    }
    EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);
    EXPECT_EQ(to_bfloat16(-kInfinity), 0xff80);
}

// By definition: 4 bits of exponent, 3 of fraction.
float float8_by_definition(unsigned bits) {
    const int exponent = static_cast<int>(bits >> 3 & 15), fraction = static_cast<int>(bits & 7);
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                     : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
    return (bits & 0x80) != 0 ? -size : size;
}

TEST(Float8, IsReadByDefinitionAndRoundsToTheNearestAndTiesToEven) {
    for (unsigned bits = 0; bits < 256; ++bits) {
        if ((bits & 0x7f) == 0x7f) continue; // no number
        EXPECT_EQ(from_float8(static_cast<std::uint8_t>(bits)), float8_by_definition(bits)) << bits;
        EXPECT_EQ(to_float8(float8_by_definition(bits)), bits);
    }
    for (unsigned low = 0; low < 0x7e; ++low) {
        const float middle = (float8_by_definition(low) + float8_by_definition(low + 1)) / 2;
        for (const unsigned sign : {0U, 0x80U}) {
            const float signed_middle = sign != 0 ? -middle : middle;
            const float outward = sign != 0 ? -kInfinity : kInfinity;
            EXPECT_EQ(to_float8(signed_middle), (low + (low & 1)) | sign) << low;
            EXPECT_EQ(to_float8(std::nextafter(signed_middle, 0.0F)), low | sign) << low;
            EXPECT_EQ(to_float8(std::nextafter(signed_middle, outward)), (low + 1) | sign) << low;
        }
    }
    EXPECT_EQ(from_float8(to_float8(1e9F)), 448);
    EXPECT_EQ(from_float8(to_float8(-kInfinity)), -448);
    EXPECT_TRUE(std::isnan(from_float8(to_float8(std::nanf("")))));
    EXPECT_TRUE(std::isnan(from_float8(0xff)));
}

TEST(Halves, ANotANumberStaysOneEvenWithItsPayloadInTheLowBits) {
    for (const std::uint32_t bits : {0x7f800001U, 0xff800001U, 0x7fffffffU, 0xffffffffU}) {
        EXPECT_TRUE(std::isnan(from_bfloat16(to_bfloat16(std::bit_cast<float>(bits))))) << std::hex << bits;
        EXPECT_TRUE(std::isnan(from_float16(to_float16(std::bit_cast<float>(bits))))) << std::hex << bits;
    }
}

} // namespace half_test
