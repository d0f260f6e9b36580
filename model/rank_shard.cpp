#include "model/rank_shard.h"

#include "model/cpu/kernels.h"

namespace entrodraft::model {

RankShard shard_of(const ModelConfig& config, int rank, int ranks) {
    constexpr int kVocabUnit = 64;
    return {dist::head_shard(config.n_heads, config.n_kv_heads, rank, ranks),
            dist::even_slice(config.intermediate_size, rank, ranks, kernels::kLanes),
            dist::even_slice(config.vocab_size, rank, ranks, kVocabUnit), rank == 0};
}

ShardShapes shapes_of(const ModelConfig& config, const RankShard& shard) {
    const int hidden = config.hidden_size, embedding = config.embedding_size, dim = config.head_dim;
    const int mlp = static_cast<int>(shard.mlp.size()), vocab = static_cast<int>(shard.vocab.size());
    const int attended = shard.n_query_heads() * dim;
    ShardShapes shapes;
    shapes.embedding = {vocab, embedding};
    if (!config.tied_embeddings) shapes.head = {vocab, embedding};
    if (embedding != hidden) {
        shapes.project_in = {hidden, embedding};
        shapes.project_out = {embedding, hidden};
    }
    const int qkv = attended + 2 * shard.n_kv_heads() * dim;
    shapes.layer = {{qkv, hidden}, {hidden, attended}, {}, {mlp, hidden}, {hidden, mlp}};
    if (config.gated_mlp) shapes.layer.gate = {mlp, hidden};

    const std::int64_t norm = (config.norm == Norm::layer ? 2 : 1) * std::int64_t{hidden};
    std::int64_t layer = norm * (config.block == Block::sandwich ? 4 : config.shared_norm ? 1 : 2);
    if (config.query_key_norm) layer += 2 * dim;
    if (config.qkv_bias) layer += qkv;
    if (config.mlp_bias) layer += (config.gated_mlp ? 2 : 1) * mlp;
    if (shard.is_first) layer += (config.output_bias ? hidden : 0) + (config.mlp_bias ? hidden : 0);
    shapes.floats = config.n_layers * layer + (config.final_norm ? norm : 0) + (config.head_bias ? vocab : 0);
    if (config.positions == Positions::learned)
        shapes.floats += (std::int64_t{config.max_positions} + config.position_offset) * hidden;
    return shapes;
}

std::int64_t parameter_count(const ModelConfig& config) {
    const ShardShapes shapes = shapes_of(config, shard_of(config, 0, 1));
    const auto count = [](auto... matrices) { return ((std::int64_t{matrices.outputs} * matrices.inputs) + ...); };
    const LayerShapes& layer = shapes.layer;
    return config.n_layers * count(layer.qkv, layer.output, layer.gate, layer.up, layer.down) +
           count(shapes.embedding, shapes.head, shapes.project_in, shapes.project_out) + shapes.floats;
}

} // namespace entrodraft::model
