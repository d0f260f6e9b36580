// Counter-based random numbers (Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011): a number is a pure function of key and counter, so no rank keeps generator state.
//
// Key: hash of (seed, sequence key, purpose, cascade level). Counter: (position, token or 0, round start).
// Two purposes never share a number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace entrodraft::spec {

// What a number is drawn for. No number serves two purposes: one for draft sample and resample visibly bends the output
// distribution.
enum class Purpose : std::uint32_t { gumbel_noise = 1, draft_sample = 2, acceptance = 3, resample = 4 };

// The raw generator: 128 bits out of a 64-bit key and a 128-bit counter. Local.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// Of noise for tokens at a position that a round decides which began at `round_start`, 0 where any round does: one
// number for both, since a position fits into 32 bits.
inline std::uint64_t noise_position(std::uint64_t position, std::uint64_t round_start) {
    return position | round_start << 32;
}

class RandomStream {
  public:
    RandomStream(std::uint64_t seed, std::uint64_t sequence_key, Purpose purpose, std::uint32_t cascade_level = 0);
    // Uniform in [0, 1) with 53 bits. Local.
    double uniform(std::uint64_t position, std::uint32_t token = 0, std::uint32_t round_start = 0) const;

    std::array<std::uint32_t, 2> key() const { return key_; }

  private:
    std::array<std::uint32_t, 2> key_;
};

// 64-bit mixing hash of a byte string, for sequence keys and checksums: the same on every machine. Local.
std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0);

} // namespace entrodraft::spec
