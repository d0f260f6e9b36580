// Digests of stored tensors: what changes them, and that shares add up to them.
#include "model/weights/tensor_digest.h"

#include "tests/model/checkpoint_files.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace entrodraft::model {
namespace tensor_digest_test {

constexpr std::size_t kLarge = (std::size_t{2} << 20) + 77; // several blocks and a rest
constexpr std::size_t kSmall = 10;

using Digests = std::vector<std::uint64_t>;

// Tensors "a", large, and "b", small, of counted bytes; byte `flipped` of both together has another bit.
class TwoTensors {
  public:
    explicit TwoTensors(std::size_t flipped = SIZE_MAX) {
        std::string bytes = safetensors_of(
            "{" + header_entry("a", "U8", "[" + std::to_string(kLarge) + "]", 0, kLarge) + "," +
                header_entry("b", "U8", "[" + std::to_string(kSmall) + "]", kLarge, kLarge + kSmall) + "}",
            kLarge + kSmall);
        if (flipped != SIZE_MAX) bytes[bytes.size() - kLarge - kSmall + flipped] ^= 1;
        checkpoint_ = Checkpoint::open_file(directory_.write("x.safetensors", bytes));
    }
    Digests digests(DigestDepth depth, DigestShare share = {}, int threads = 1) const {
        ThreadTeam team(threads);
        return digest_tensors(checkpoint_, depth, share, team);
    }
    const Checkpoint& checkpoint() const { return checkpoint_; }

  private:
    TemporaryDirectory directory_;
    Checkpoint checkpoint_;
};

TEST(TensorDigest, OfRanksAndThreadsAddUpToThatOfOne) {
    const TwoTensors tensors;
    for (const DigestDepth depth : {DigestDepth::sampled, DigestDepth::full}) {
        Digests sum(2);
        for (int share = 0; share < 3; ++share) {
            const Digests part = tensors.digests(depth, {share, 3}, 1 + share);
            for (std::size_t i = 0; i < sum.size(); ++i)
                sum[i] += part[i];
        }
        EXPECT_EQ(sum, tensors.digests(depth));
    }
}

TEST(TensorDigest, SharesAreAsManyAsTheirMostBytesNeed) {
    const TwoTensors tensors; // of blocks of 1 MiB, two, and of the rests, two
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    for (const auto& [most, shares] : {std::pair{kMiB, 4}, {2 * kMiB, 2}, {3 * kMiB + 1, 2}, {256 * kMiB, 1}}) {
        ASSERT_EQ(shares_of_at_most(most, tensors.checkpoint(), DigestDepth::full), shares);
        for (int share = 0; share < shares; ++share) {
            ThreadTeam team(1);
            digest_tensors(tensors.checkpoint(), DigestDepth::full, {share, shares}, team,
                           [&, limit = most](std::size_t, std::size_t total) { EXPECT_LE(total, limit); });
        }
    }
    EXPECT_EQ(shares_of_at_most(kMiB, tensors.checkpoint(), DigestDepth::sampled), static_cast<int>(kSamples) + 1);
}

TEST(TensorDigest, ChangesWithAnyByteOfTheTensorAndWithNoOther) {
    const Digests sound = TwoTensors().digests(DigestDepth::full);
    for (const std::size_t at : {std::size_t{0}, kLarge / 2, std::size_t{1} << 20, kLarge - 1}) {
        const Digests other = TwoTensors(at).digests(DigestDepth::full);
        EXPECT_NE(other[0], sound[0]) << at;
        EXPECT_EQ(other[1], sound[1]) << at;
    }
    EXPECT_NE(TwoTensors(kLarge + 3).digests(DigestDepth::full)[1], sound[1]);
}

TEST(TensorDigest, OfSamplesSeesTheEndsOfEachTensorAndReadsLittle) {
    const TwoTensors tensors;
    const Digests sound = tensors.digests(DigestDepth::sampled);
    for (const std::size_t at : {std::size_t{0}, kLarge - 1})
        EXPECT_NE(TwoTensors(at).digests(DigestDepth::sampled)[0], sound[0]) << at;
    EXPECT_NE(TwoTensors(kLarge + 3).digests(DigestDepth::sampled)[1], sound[1]);
    EXPECT_EQ(TwoTensors(kLarge / 2).digests(DigestDepth::sampled), sound); // what is not looked at
    EXPECT_EQ(digested_bytes(tensors.checkpoint(), DigestDepth::sampled), kSamples * kSampleBytes + kSmall);
    EXPECT_EQ(digested_bytes(tensors.checkpoint(), DigestDepth::full), kLarge + kSmall);
}

TEST(TensorDigest, OfBlocksKnowsLengthOrderAndSeed) {
    const std::vector<std::byte> zeros(200);
    std::set<std::uint64_t> hashes;
    for (std::size_t n = 0; n <= zeros.size(); ++n)
        hashes.insert(hash_block(std::span(zeros).first(n), 0));
    for (std::size_t at = 0; at < zeros.size(); ++at) {
        std::vector<std::byte> one = zeros;
        one[at] = std::byte{1};
        hashes.insert(hash_block(one, 0));
    }
    hashes.insert(hash_block(zeros, 1));
    EXPECT_EQ(hashes.size(), 201 + 200 + 1u);
}

} // namespace tensor_digest_test
} // namespace entrodraft::model
