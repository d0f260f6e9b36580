// Makes random words by their number: SplitMix64 (Steele, Lea and Flood 2014). Its state is a counter, so any word can
// be made by itself, with the same result on hosts and devices. It is for weights without meaning and for arrays in
// measurements; texts use spec/verify/random.h.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define ENTRODRAFT_ON_DEVICES __host__ __device__
#else
#define ENTRODRAFT_ON_DEVICES
#endif

namespace entrodraft::model {

// A bijection. Pure.
ENTRODRAFT_ON_DEVICES inline std::uint64_t mixed_word(std::uint64_t word) {
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u;
    word = (word ^ word >> 27) * 0x94D049BB133111EBu;
    return word ^ word >> 31;
}

// Word `number` of the sequence of `key`. Pure.
ENTRODRAFT_ON_DEVICES inline std::uint64_t random_word(std::uint64_t key, std::uint64_t number) {
    return mixed_word(key + (number + 1) * 0x9E3779B97F4A7C15u);
}

} // namespace entrodraft::model
