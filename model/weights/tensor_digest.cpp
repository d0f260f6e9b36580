// Cuts tensors into blocks, gives them to threads and hashes them: see tensor_digest.h.
#include "model/weights/tensor_digest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace entrodraft::model {
namespace {

constexpr std::size_t kDigestBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kHashLanes = 8; // independent multiplications: one alone would wait for its result
constexpr std::size_t kHashStripeBytes = kHashLanes * sizeof(std::uint64_t);
constexpr std::uint64_t kHashMultiplier =
    0x9E3779B97F4A7C15; // odd: each step is a bijection of the word and of the lane

struct HashLanes {
    std::array<std::uint64_t, kHashLanes> values;

    void add(const std::byte* stripe) {
        std::array<std::uint64_t, kHashLanes> words;
        std::memcpy(words.data(), stripe, kHashStripeBytes);
        for (std::size_t i = 0; i < kHashLanes; ++i)
            values[i] = std::rotl((values[i] ^ words[i]) * kHashMultiplier, 29);
    }
};

// The finalizer of MurmurHash3, a bijection.
std::uint64_t mix_bits(std::uint64_t value) {
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD;
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53;
    return value ^ value >> 33;
}

struct TensorBlock {
    std::size_t tensor = 0;
    std::size_t offset = 0; // within the tensor
    std::span<const std::byte> bytes;
};

std::vector<TensorBlock> blocks_of(const Checkpoint& checkpoint, DigestDepth depth) {
    std::vector<TensorBlock> blocks;
    std::size_t tensor = 0;
    for (const auto& [name, view] : checkpoint.tensors()) {
        const std::size_t size = view.bytes.size();
        const bool is_whole = depth == DigestDepth::full || size <= kSamples * kSampleBytes;
        for (std::size_t at = 0; is_whole && at < size; at += kDigestBlockBytes)
            blocks.push_back({tensor, at, view.bytes.subspan(at, std::min(kDigestBlockBytes, size - at))});
        for (std::size_t i = 0; !is_whole && i < kSamples; ++i) {
            const std::size_t at = (size - kSampleBytes) / (kSamples - 1) * i;
            const std::size_t from = i + 1 < kSamples ? at : size - kSampleBytes;
            blocks.push_back({tensor, from, view.bytes.subspan(from, kSampleBytes)});
        }
        ++tensor;
    }
    return blocks;
}

} // namespace

std::uint64_t hash_block(std::span<const std::byte> bytes, std::uint64_t seed) {
    HashLanes lanes;
    for (std::size_t i = 0; i < kHashLanes; ++i)
        lanes.values[i] = mix_bits(seed + i);
    const std::size_t whole = bytes.size() / kHashStripeBytes * kHashStripeBytes;
    for (std::size_t at = 0; at < whole; at += kHashStripeBytes)
        lanes.add(bytes.data() + at);
    if (whole < bytes.size()) {
        std::array<std::byte, kHashStripeBytes> rest = {};
        std::memcpy(rest.data(), bytes.data() + whole, bytes.size() - whole);
        lanes.add(rest.data());
    }
    std::uint64_t hash = mix_bits(bytes.size());
    for (const std::uint64_t lane : lanes.values)
        hash = mix_bits(hash ^ lane);
    return hash;
}

int shares_of_at_most(std::size_t max_bytes, const Checkpoint& checkpoint, DigestDepth depth) {
    const std::size_t per_share = max_bytes / kDigestBlockBytes;
    return static_cast<int>(
        std::max<std::size_t>(1, (blocks_of(checkpoint, depth).size() + per_share - 1) / per_share));
}

std::uint64_t digested_bytes(const Checkpoint& checkpoint, DigestDepth depth) {
    std::uint64_t bytes = 0;
    for (const TensorBlock& block : blocks_of(checkpoint, depth))
        bytes += block.bytes.size();
    return bytes;
}

std::vector<std::uint64_t> digest_tensors(const Checkpoint& checkpoint, DigestDepth depth, DigestShare share,
                                          ThreadTeam& team, const DigestProgress& progress) {
    const std::vector<TensorBlock> blocks = blocks_of(checkpoint, depth);
    const std::size_t n_tensors = checkpoint.tensors().size();
    const auto n_shares = static_cast<std::size_t>(share.count) * static_cast<std::size_t>(team.size());
    std::vector<std::vector<std::uint64_t>> by_thread(static_cast<std::size_t>(team.size()),
                                                      std::vector<std::uint64_t>(n_tensors));
    team.run([&](int thread) { // consecutive blocks, so that files are read from front to back
        std::vector<std::uint64_t>& sums = by_thread[thread];
        const auto mine = static_cast<std::size_t>(share.index) * static_cast<std::size_t>(team.size()) +
                          static_cast<std::size_t>(thread);
        const std::size_t begin = blocks.size() * mine / n_shares, end = blocks.size() * (mine + 1) / n_shares;
        std::size_t done = 0, total = 0;
        for (std::size_t i = begin; i < end; ++i)
            total += blocks[i].bytes.size();
        for (std::size_t i = begin; i < end; ++i) {
            sums[blocks[i].tensor] += hash_block(blocks[i].bytes, blocks[i].offset);
            done += blocks[i].bytes.size();
            if (thread == 0 && progress) progress(done, total);
        }
    });
    std::vector<std::uint64_t> digests(n_tensors);
    for (const std::vector<std::uint64_t>& sums : by_thread)
        for (std::size_t i = 0; i < n_tensors; ++i)
            digests[i] += sums[i];
    return digests;
}

} // namespace entrodraft::model
