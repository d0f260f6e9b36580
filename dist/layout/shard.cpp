// Slices of an axis and of attention heads: arithmetic only.
#include "dist/layout/shard.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::dist {
namespace {

void check_rank(int rank, int ranks) {
    if (ranks < 1 || rank < 0 || rank >= ranks) {
        throw std::invalid_argument(fmt::format("rank {} is not one of {}", rank, ranks));
    }
}

} // namespace

Slice even_slice(std::int64_t length, int rank, int ranks, std::int64_t unit) {
    check_rank(rank, ranks);
    if (length < 0 || unit < 1) {
        throw std::invalid_argument(fmt::format("cannot cut {} items in units of {}", length, unit));
    }
    const std::int64_t units = length / unit + (length % unit != 0 ? 1 : 0);
    const std::int64_t each = units / ranks;
    const std::int64_t larger_parts = units % ranks; // the first ranks take one unit more
    const auto first_unit = [&](std::int64_t r) { return r * each + std::min(r, larger_parts); };
    // The last unit may be partial, so only the very end can lie beyond `length`.
    const auto bound = [&](std::int64_t r) { return first_unit(r) == units ? length : first_unit(r) * unit; };
    return {bound(rank), bound(rank + std::int64_t{1})};
}

HeadShard head_shard(int n_heads, int n_kv_heads, int rank, int ranks) {
    check_rank(rank, ranks);
    if (n_heads < 1 || n_kv_heads < 1 || n_heads % n_kv_heads != 0) {
        throw std::invalid_argument(
            fmt::format("{} attention heads do not share {} KV heads evenly", n_heads, n_kv_heads));
    }
    if (ranks > n_heads) {
        throw std::invalid_argument(
            fmt::format("{0} attention heads cannot be sharded across {1} ranks: at most {0}", n_heads, ranks));
    }
    const std::int64_t group = n_heads / n_kv_heads; // query heads of a KV head
    if (n_kv_heads >= ranks) {
        const Slice kv = even_slice(n_kv_heads, rank, ranks);
        return {{kv.begin * group, kv.end * group}, kv};
    }
    HeadShard shard;
    if (ranks % n_kv_heads == 0) { // each KV head has the same number of ranks
        const int sharers = ranks / n_kv_heads, kv = rank / sharers;
        const Slice in_group = even_slice(group, rank % sharers, sharers);
        shard.query_heads = {kv * group + in_group.begin, kv * group + in_group.end};
    } else {
        shard.query_heads = even_slice(n_heads, rank, ranks);
    }
    shard.kv_heads = {shard.query_heads.begin / group, (shard.query_heads.end - 1) / group + 1};
    return shard;
}

} // namespace entrodraft::dist
