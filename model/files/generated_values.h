// What a tensor holds that no file stores: one value everywhere, or random weights, which are a function of a key and
// of the element's place alone: any shard on any device has the same.
//
// A random weight is one of 256 values, the odd multiples of 2^-13 up to 255 times it: exact in every type of 16 bits
// or more, of deviation 0.018. Made by random_checkpoint() (weights/tensor_shapes.h), read by packing and gpu/uploader.
#pragma once

#include "model/files/random_words.h"

#include <cstdint>

namespace entrodraft::model {

struct GeneratedValues {
    bool is_random = false;
    std::uint64_t key = 0; // of random ones
    float value = 0;       // of the others
};

inline constexpr int kRandomWeights = 256;

// Which of them element `place` has. Pure.
ENTRODRAFT_ON_DEVICES inline int random_weight_index(std::uint64_t key, std::uint64_t place) {
    return static_cast<int>(random_word(key, place / 8) >> (place % 8 * 8) & 255);
}
ENTRODRAFT_ON_DEVICES constexpr float random_weight(int index) {
    return static_cast<float>(2 * index - 255) * 0x1p-13f;
}

// `count` values from element `first` on, `stride` apart.
void read_generated(const GeneratedValues& values, std::int64_t first, std::int64_t stride, int count, float* out);

} // namespace entrodraft::model
