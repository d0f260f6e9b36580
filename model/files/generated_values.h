// Makes the values of a tensor that no file stores: one value everywhere, or random weights. A random weight depends
// only on a key and on the element's place. So it is the same in any shard, on any device.
//
// A random weight is one of 256 values: odd multiples of 2^-13, up to 255 * 2^-13. These are exact in every type of 16
// bits or more, and have a deviation of 0.018. random_checkpoint() (weights/tensor_shapes.h) makes them; packing and
// gpu/uploader read them.
#pragma once

#include "model/files/random_words.h"

#include <cstdint>

namespace entrodraft::model {

struct GeneratedValues {
    bool is_random = false;
    std::uint64_t key = 0; // for random values
    float value = 0;       // for the others
};

inline constexpr int kRandomWeights = 256;

// Returns the index of the value that element `place` has. Pure.
ENTRODRAFT_ON_DEVICES inline int random_weight_index(std::uint64_t key, std::uint64_t place) {
    return static_cast<int>(random_word(key, place / 8) >> (place % 8 * 8) & 255);
}
ENTRODRAFT_ON_DEVICES constexpr float random_weight(int index) {
    return static_cast<float>(2 * index - 255) * 0x1p-13f;
}

// Writes `count` values from element `first` on, `stride` apart.
void read_generated(const GeneratedValues& values, std::int64_t first, std::int64_t stride, int count, float* out);

} // namespace entrodraft::model
