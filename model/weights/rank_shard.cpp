#include "model/weights/rank_shard.h"

#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::model {

RankShard shard_of(const ModelConfig& config, int rank, int ranks) {
    constexpr int kVocabUnit = 64;
    const int n_linear_keys = config.linear.n_key_heads;
    if (config.n_linear_layers() > 0 && ranks > n_linear_keys)
        throw std::invalid_argument(fmt::format(
            "{0} key heads of linear attention cannot be sharded across {1} ranks: at most {0}", n_linear_keys, ranks));
    const dist::Slice vocab = dist::even_slice(config.vocab_size, rank, ranks, kVocabUnit);
    return {dist::head_shard(config.n_heads, config.n_kv_heads, rank, ranks),
            dist::even_slice(config.intermediate_size, rank, ranks, kShardUnit),
            vocab,
            dist::even_slice(config.n_outputs(), rank, ranks, kVocabUnit),
            rank == 0,
            dist::even_slice(config.experts.intermediate_size, rank, ranks, kShardUnit),
            dist::even_slice(config.experts.shared_size, rank, ranks, kShardUnit),
            dist::even_slice(n_linear_keys, rank, ranks),
            vocab};
}

void hold_small_embedding_whole(const ModelConfig& config, std::size_t bytes_of_number, std::int64_t max_bytes,
                                RankShard& shard) {
    const std::int64_t numbers = std::int64_t{config.vocab_size} * config.embedding_size;
    if (numbers <= max_bytes / static_cast<std::int64_t>(bytes_of_number)) shard.looked_up = {0, config.vocab_size};
}

} // namespace entrodraft::model
