// Philox4x32-10 and the keys drawn from it. Not a generator with state: see philox.h.
#include "spec/verify/philox.h"

namespace entrodraft::spec {

namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kKeyStep0 = 0x9E3779B9, kKeyStep1 = 0xBB67AE85;
constexpr int kRounds = 10;
constexpr std::uint64_t kHashStep = 0x9E3779B97F4A7C15;

// A bijection of 64 bits in which every input bit moves every output bit (the finalizer of SplitMix64).
std::uint64_t mix(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
}

std::uint64_t absorb(std::uint64_t state, std::uint64_t word) {
    return mix(state + kHashStep + mix(word + kHashStep));
}

} // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
        const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
        counter = {
            static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
            static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
        key[0] += kKeyStep0;
        key[1] += kKeyStep1;
    }
    return counter;
}

RandomStream::RandomStream(std::uint64_t seed, std::uint64_t sequence_key, Purpose purpose,
                           std::uint32_t cascade_level) {
    std::uint64_t state = absorb(absorb(0, seed), sequence_key);
    state = absorb(state, std::uint64_t{static_cast<std::uint32_t>(purpose)} << 32 | cascade_level);
    key_ = {static_cast<std::uint32_t>(state), static_cast<std::uint32_t>(state >> 32)};
}

double RandomStream::uniform(std::uint64_t position, std::uint32_t token, std::uint32_t round_start) const {
    const auto bits = philox4x32(
        {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), token, round_start}, key_);
    const std::uint64_t word = std::uint64_t{bits[1]} << 32 | bits[0];
    return static_cast<double>(word >> 11) * 0x1p-53;
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
    const auto* byte = static_cast<const unsigned char*>(data);
    std::uint64_t state = absorb(absorb(0, seed), bytes);
    for (std::size_t start = 0; start < bytes; start += 8) {
        std::uint64_t word = 0; // little-endian on every machine
        for (std::size_t i = 0; i < 8 && start + i < bytes; ++i)
            word |= std::uint64_t{byte[start + i]} << (8 * i);
        state = absorb(state, word);
    }
    return state;
}

} // namespace entrodraft::spec
