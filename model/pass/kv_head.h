// Where a head's keys and values of a slot lie. Made by KvCache, read by the CPU's kernels.
#pragma once

#include <cstddef>

namespace entrodraft::model {

// Numbers are of KvCache::Shape::type. One of int8 is times its position's scale.
struct KvHead {
    std::byte* keys = nullptr;     // [position / 16][head_dim][16]
    std::byte* values = nullptr;   // [position][value_dim]
    float* key_scales = nullptr;   // [position], of int8 alone, as the next
    float* value_scales = nullptr; // [position]
};

} // namespace entrodraft::model
