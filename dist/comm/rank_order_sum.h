// All host collectives add in this order: ((rank 0 + rank 1) + rank 2) + ..., element by element. The order does not
// depend on the transport, on the count or on an element's place. So a row's sum never depends on the other rows. Used
// inside this module only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace entrodraft::dist {

// out[0..count) = sum over parts[r][0..count), at least two parts; `out` overlaps none of them.
inline void sum_in_rank_order(float* __restrict out, const std::vector<const float*>& parts, std::size_t count) {
    constexpr std::size_t kBlock = 1024; // floats: `out` stays in the first-level cache while the parts are added
    for (std::size_t begin = 0; begin < count; begin += kBlock) {
        const std::size_t n = std::min(kBlock, count - begin);
        float* __restrict sum = out + begin;
        const float* first = parts[0] + begin;
        const float* second = parts[1] + begin;
        for (std::size_t i = 0; i < n; ++i)
            sum[i] = first[i] + second[i];
        for (std::size_t rank = 2; rank < parts.size(); ++rank) {
            const float* __restrict part = parts[rank] + begin;
            for (std::size_t i = 0; i < n; ++i)
                sum[i] += part[i];
        }
    }
}

} // namespace entrodraft::dist
