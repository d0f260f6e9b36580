// The place of one head's keys and values in a slot. KvCache makes it, the CPU's kernels read it.
#pragma once

#include <cstddef>

namespace entrodraft::model {

// Numbers have type KvCache::Shape::type. An int8 number is multiplied by its position's scale.
struct KvHead {
    std::byte* keys = nullptr;     // [position / 16][head_dim][16]
    std::byte* values = nullptr;   // [position][value_dim]
    float* key_scales = nullptr;   // [position], only for int8, as the next
    float* value_scales = nullptr; // [position]
};

} // namespace entrodraft::model
