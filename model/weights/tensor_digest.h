// 64-bit digests of stored tensors, to compare copies of a checkpoint. They find copies that differ by accident; they
// do not protect against deliberate forgery.
//
// A tensor is hashed in blocks, and its digest is the sum of the blocks' hashes modulo 2^64. So each thread, and each
// rank that reads the same files, can hash a share of the blocks. Called by launch/load/same_models.
#pragma once

#include "model/files/checkpoint.h"
#include "model/host/thread_team.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace entrodraft::model {

enum class DigestDepth {
    sampled, // kSamples blocks of kSampleBytes of each tensor, evenly spaced, including its first and last bytes
    full,    // every byte
};
inline constexpr std::size_t kSamples = 4;
inline constexpr std::size_t kSampleBytes = 4096;

// The share of the blocks that is hashed here.
struct DigestShare {
    int index = 0;
    int count = 1;
};

using DigestProgress = std::function<void(std::size_t done_bytes, std::size_t total_bytes)>;

// Returns a hash of a block. If two blocks differ in one aligned word of 8 bytes, their hashes differ. Other different
// blocks have the same hash with probability 2^-64.
std::uint64_t hash_block(std::span<const std::byte> bytes, std::uint64_t seed);

// Returns, for each tensor in the order of checkpoint.tensors(), the sum over the blocks of this share. The sum over
// all shares is the digest of the tensor. One thread calls `progress`.
std::vector<std::uint64_t> digest_tensors(const Checkpoint& checkpoint, DigestDepth depth, DigestShare share,
                                          ThreadTeam& team, const DigestProgress& progress = {});

// Returns the number of shares with which none reads more than `max_bytes`, 1 MiB at least.
int shares_of_at_most(std::size_t max_bytes, const Checkpoint& checkpoint, DigestDepth depth);

// Returns the number of bytes that such a digest reads, over all shares.
std::uint64_t digested_bytes(const Checkpoint& checkpoint, DigestDepth depth);

} // namespace entrodraft::model
