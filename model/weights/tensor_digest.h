// 64-bit digests of tensors as they are stored, to compare copies of a checkpoint. They find copies that differ by
// accident; they do not protect against deliberate forgery.
//
// A tensor is hashed in blocks and its digest is the sum of their hashes modulo 2^64, so that threads, and ranks that
// read the same files, each hash a share of the blocks. Called by launch/load/same_models.
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
    sampled, // kSamples blocks of kSampleBytes of each tensor, evenly spaced, its first and its last bytes among them
    full,    // every byte
};
inline constexpr std::size_t kSamples = 4;
inline constexpr std::size_t kSampleBytes = 4096;

// The part of the blocks that is to be hashed here.
struct DigestShare {
    int index = 0;
    int count = 1;
};

using DigestProgress = std::function<void(std::size_t done_bytes, std::size_t total_bytes)>;

// A hash of a block. Two blocks that differ in one aligned word of 8 bytes never have the same one, others with
// probability 2^-64.
std::uint64_t hash_block(std::span<const std::byte> bytes, std::uint64_t seed);

// For each tensor, in the order of checkpoint.tensors(): the sum over the blocks of this share. Added up over all
// shares it is the digest of the tensor. `progress` is called by one thread.
std::vector<std::uint64_t> digest_tensors(const Checkpoint& checkpoint, DigestDepth depth, DigestShare share,
                                          ThreadTeam& team, const DigestProgress& progress = {});

// Into how many shares the blocks have to go for none to read more than `max_bytes`, 1 MiB at least.
int shares_of_at_most(std::size_t max_bytes, const Checkpoint& checkpoint, DigestDepth depth);

// How many bytes that reads, over all shares.
std::uint64_t digested_bytes(const Checkpoint& checkpoint, DigestDepth depth);

} // namespace entrodraft::model
