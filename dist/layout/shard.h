// Computes the part of an axis that a rank has in tensor parallelism. Pure arithmetic.
#pragma once

#include <cstdint>

namespace entrodraft::dist {

// The half-open range [begin, end) of an axis.
struct Slice {
    std::int64_t begin = 0;
    std::int64_t end = 0;

    std::int64_t size() const { return end - begin; }
    bool contains(std::int64_t index) const { return index >= begin && index < end; }
    friend bool operator==(const Slice&, const Slice&) = default;
};

// Returns the part of `rank` in `length` items, cut in units of `unit`. Parts are whole units, as even as possible, and
// earlier ranks take the larger parts. The last unit may be partial. The slices of all ranks tile [0, length).
Slice even_slice(std::int64_t length, int rank, int ranks, std::int64_t unit = 1);

// The heads of one rank: a run of query heads, and the KV heads that they read.
//
// With at least as many KV heads as ranks, whole KV heads go with their query heads, and some ranks get one more than
// others. With fewer KV heads, ranks share them: each sharing rank then holds a copy.
struct HeadShard {
    Slice query_heads;
    Slice kv_heads;
};

// Every rank gets at least one query head. Throws std::invalid_argument that names the largest number of ranks.
HeadShard head_shard(int n_heads, int n_kv_heads, int rank, int ranks);

} // namespace entrodraft::dist
