// Random numbers: the published vectors of Philox4x32-10, and the promises of the streams.
#include "spec/verify/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace entrodraft::spec {
namespace philox_test {

using Words = std::array<std::uint32_t, 4>;

constexpr Purpose kPurposes[] = {Purpose::gumbel_noise, Purpose::draft_sample, Purpose::acceptance, Purpose::resample};

TEST(Philox, GivesThePublishedVectors) {
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    constexpr std::uint32_t kOnes = 0xffffffff;
    EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, GivesTheSameNumberForTheSameQuestion) {
    const RandomStream one(5, 6, Purpose::acceptance), two(5, 6, Purpose::acceptance);
    EXPECT_EQ(one.uniform(7, 8, 9), two.uniform(7, 8, 9));
    EXPECT_EQ(one.uniform(7, 8, 9), one.uniform(7, 8, 9));
}

// A new layout of key or counter changes every sampled text at a given seed. Then update these numbers knowingly.
TEST(RandomStream, KeepsItsNumbersFromReleaseToRelease) {
    EXPECT_DOUBLE_EQ(RandomStream(0, 0, Purpose::gumbel_noise).uniform(0), 0.57305518360783236);
    EXPECT_DOUBLE_EQ(RandomStream(1, 2, Purpose::resample, 3).uniform(std::uint64_t{1} << 40, 5, 6),
                     0.026954754385798529);
    EXPECT_EQ(hash_bytes("", 0), 11149429884311503545u);
    EXPECT_EQ(hash_bytes("\"prompt 17\"", 11), 4961276687883660257u);
}

TEST(RandomStream, ChangesWithEveryPartOfKeyAndCounter) {
    std::set<double> numbers;
    for (const Purpose purpose : kPurposes)
        numbers.insert(RandomStream(1, 1, purpose).uniform(1));
    numbers.insert(RandomStream(2, 1, Purpose::acceptance).uniform(1));
    numbers.insert(RandomStream(1, 2, Purpose::acceptance).uniform(1));
    numbers.insert(RandomStream(1, 1, Purpose::acceptance, 1).uniform(1));
    const RandomStream stream(1, 1, Purpose::acceptance);
    numbers.insert(stream.uniform(2));
    numbers.insert(stream.uniform((std::uint64_t{1} << 32) + 1));
    numbers.insert(stream.uniform(1, 1));
    numbers.insert(stream.uniform(1, 0, 1));
    EXPECT_EQ(numbers.size(), 11u);
}

TEST(RandomStream, IsUniformInTheHalfOpenUnitInterval) {
    constexpr int kNumbers = 200000, kBins = 64;
    for (const Purpose purpose : kPurposes) {
        const RandomStream stream(11, 12, purpose);
        std::vector<int> counts(kBins);
        for (int i = 0; i < kNumbers; ++i) {
            const double u = stream.uniform(static_cast<std::uint64_t>(i));
            ASSERT_GE(u, 0.0);
            ASSERT_LT(u, 1.0);
            ++counts[static_cast<std::size_t>(u * kBins)];
        }
        double chi_square = 0;
        for (const int count : counts)
            chi_square += std::pow(count - kNumbers / double{kBins}, 2) * kBins / kNumbers;
        EXPECT_LT(chi_square, 63 + 5 * std::sqrt(2 * 63.0)) << static_cast<int>(purpose);
    }
}

TEST(RandomStream, HasPurposesAndNeighboursThatDoNotFollowEachOther) {
    constexpr int kNumbers = 100000;
    const auto correlation = [](const RandomStream& a, const RandomStream& b, std::uint64_t shift) {
        double sum = 0;
        for (std::uint64_t i = 0; i < kNumbers; ++i)
            sum += (a.uniform(i) - 0.5) * (b.uniform(i + shift) - 0.5);
        return sum * 12 / kNumbers; // standard deviation 1 / sqrt(kNumbers)
    };
    const double limit = 5 / std::sqrt(double{kNumbers});
    for (const Purpose a : kPurposes) {
        const RandomStream stream(1, 0, a);
        EXPECT_NEAR(correlation(stream, stream, 0), 1.0, 0.02); // the test can see a correlation
        EXPECT_LT(std::abs(correlation(stream, stream, 1)), limit);
        EXPECT_LT(std::abs(correlation(stream, RandomStream(2, 0, a), 0)), limit);
        EXPECT_LT(std::abs(correlation(stream, RandomStream(1, 1, a), 0)), limit);
        for (const Purpose b : kPurposes) {
            if (a == b) continue;
            EXPECT_LT(std::abs(correlation(stream, RandomStream(1, 0, b), 0)), limit);
        }
    }
}

TEST(HashBytes, TellsApartLengthSeedAndOrder) {
    const char zeros[16] = {};
    std::set<std::uint64_t> hashes;
    for (std::size_t n = 0; n <= sizeof zeros; ++n)
        hashes.insert(hash_bytes(zeros, n));
    hashes.insert(hash_bytes(zeros, 8, 1));
    hashes.insert(hash_bytes("abcdefghABCDEFGH", 16));
    hashes.insert(hash_bytes("ABCDEFGHabcdefgh", 16));
    EXPECT_EQ(hashes.size(), 20u);
}

TEST(HashBytes, ReadsNoFurtherThanItsBytes) {
    const std::string one = "12345678901", two = "12345678902";
    EXPECT_EQ(hash_bytes(one.data(), 10), hash_bytes(two.data(), 10));
    EXPECT_NE(hash_bytes(one.data(), 11), hash_bytes(two.data(), 11));
}

} // namespace philox_test
} // namespace entrodraft::spec
