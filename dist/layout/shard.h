// Pure slicing arithmetic of tensor parallelism: which part of an axis a rank holds.
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

// Rank `rank`'s part of `length` items in units of `unit`: whole units, as even as possible, earlier
// ranks take the larger parts; the last unit may be partial. Slices of all ranks tile [0, length).
Slice even_slice(std::int64_t length, int rank, int ranks, std::int64_t unit = 1);

// Heads of one rank: a run of query heads, and the KV heads that these read.
//
// Where there are at least as many KV heads as ranks, whole KV heads go with their query heads, some ranks with one
// more than others. Where there are fewer, ranks share them: each then holds a copy.
struct HeadShard {
    Slice query_heads;
    Slice kv_heads;
};

// Every rank gets at least one query head. Throws std::invalid_argument that names the most ranks possible.
HeadShard head_shard(int n_heads, int n_kv_heads, int rank, int ranks);

} // namespace entrodraft::dist
