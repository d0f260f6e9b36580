#include "model/weights/rank_shard.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::model {

RankShard shard_of(const ModelConfig& config, int rank, int ranks) {
    constexpr int kVocabUnit = 64;
    const int n_linear_keys = config.linear.n_key_heads;
    if (config.n_linear_layers() > 0 && ranks > n_linear_keys)
        throw std::invalid_argument(fmt::format(
            "{0} key heads of linear attention cannot be sharded across {1} ranks: at most {0}", n_linear_keys, ranks));
    const ExpertsConfig& experts = config.experts;
    const bool spread = experts.placement == ExpertPlacement::spread;
    if (spread && ranks > experts.n_experts)
        throw std::invalid_argument(
            fmt::format("{0} experts cannot be spread over {1} ranks: at most {0}", experts.n_experts, ranks));
    const dist::Slice whole_expert = {0, experts.intermediate_size}, all_experts = {0, experts.n_experts};
    const dist::Slice vocab = dist::even_slice(config.vocab_size, rank, ranks, kVocabUnit);
    return {dist::head_shard(config.n_heads, config.n_kv_heads, rank, ranks),
            dist::even_slice(config.intermediate_size, rank, ranks, kShardUnit),
            vocab,
            dist::even_slice(config.n_outputs(), rank, ranks, kVocabUnit),
            rank == 0,
            spread ? whole_expert : dist::even_slice(experts.intermediate_size, rank, ranks, kShardUnit),
            dist::even_slice(experts.shared_size, rank, ranks, kShardUnit),
            dist::even_slice(n_linear_keys, rank, ranks),
            spread ? dist::even_slice(experts.n_experts, rank, ranks) : all_experts,
            spread || rank == 0,
            vocab};
}

void hold_small_embedding_whole(const ModelConfig& config, std::size_t bytes_of_number, std::int64_t max_bytes,
                                RankShard& shard) {
    const std::int64_t numbers = std::int64_t{config.vocab_size} * config.embedding_size;
    if (numbers <= max_bytes / static_cast<std::int64_t>(bytes_of_number)) shard.looked_up = {0, config.vocab_size};
}

namespace {

std::int64_t norm_floats(const ModelConfig& config) {
    return (config.norm == Norm::layer && config.norm_bias ? 2 : 1) * std::int64_t{config.hidden_size};
}

// Norms and biases that a draft head has beyond those of its layers, less the norm that its first layer lacks.
std::int64_t fusion_floats(const ModelConfig& config) {
    const FusionConfig& fusion = config.fusion;
    const std::int64_t hidden = config.hidden_size, norm = norm_floats(config);
    const bool attends = fusion.kind == Fusion::attention;
    const std::int64_t of_block = fusion.residual_size > 0 ? fusion.residual_size + hidden : hidden;
    std::int64_t floats = fusion.residual_bias ? fusion.n_residual_blocks * of_block : 0;
    if (fusion.kind == Fusion::cells)
        floats += fusion.has_bias ? fusion.n_cells * 3 * hidden : 0;
    else if (fusion.has_bias)
        floats += (fusion.kind == Fusion::concat ? 2 : 1) * hidden;
    if (fusion.kind == Fusion::sum) floats += 2 * hidden;
    if (fusion.kind == Fusion::lstm) floats += 4 * hidden;
    floats +=
        (fusion.feature_norm == Norm::layer ? 2 : 1) * fusion.n_feature_norms * std::int64_t{fusion.feature_norm_size};
    floats += (fusion.norms_embedding ? norm : 0) + (fusion.norms_state ? norm : 0);
    if (config.n_layers > 0 && (attends || !fusion.first_attention_norm)) floats -= norm;
    return floats;
}

std::int64_t count(auto... matrices) {
    return ((std::int64_t{matrices.outputs} * matrices.inputs) + ...);
}

std::int64_t expert_floats(const ModelConfig& config, const RankShard& shard) {
    return config.experts.has_biases ? 2 * shard.expert.size() + (shard.adds_expert_bias ? config.hidden_size : 0) : 0;
}

// Norms and biases of all layers.
std::int64_t layer_floats(const ModelConfig& config, const RankShard& shard, int qkv) {
    const std::int64_t hidden = config.hidden_size, norm = norm_floats(config), dim = config.head_dim;
    const std::int64_t mlp = shard.mlp.size(), heads = shard.n_query_heads() + shard.n_kv_heads();
    std::int64_t layer = 0; // of one with attention
    if (config.query_key_norm == QueryKeyNorm::head) layer += 2 * dim;
    if (config.query_key_norm == QueryKeyNorm::row) layer += heads * dim;
    if (config.has_sinks) layer += shard.n_query_heads();
    if (config.is_latent()) layer += config.latent.query_rank + config.latent.rank;
    if (config.qkv_bias) layer += qkv;
    if (config.has_encoder()) {
        layer += norm;
        if (config.qkv_bias) layer += qkv;
        if (config.output_bias && shard.is_first) layer += hidden;
    }
    if (shard.is_first && config.output_bias) layer += hidden;
    const std::int64_t of_mlp = (config.gated_mlp ? 2 : 1) * mlp + (shard.is_first ? hidden : 0);
    const int n_expert_layers = config.n_expert_layers();
    const std::int64_t of_linear =
        shard.linear_keys.size() *
            (std::int64_t{config.linear.n_convolved} * config.linear.convolved_size() + 2 * config.linear.group()) +
        config.linear.value_dim;
    std::int64_t floats = config.n_layers * norm * (config.block == Block::sandwich ? 4 : config.shared_norm ? 1 : 2);
    floats += config.n_attention_layers() * layer;
    if (config.n_linear_layers() > 0) floats += config.n_linear_layers() * of_linear;
    if (config.mlp_bias) floats += (config.n_layers - n_expert_layers) * of_mlp;
    const std::int64_t n_experts = std::int64_t{n_expert_layers} * config.experts.n_experts;
    if (config.experts.has_correction) floats += n_experts;
    if (config.experts.has_router_bias) floats += n_experts;
    floats += n_expert_layers * shard.experts.size() * expert_floats(config, shard);
    return floats;
}

// What layers have besides attention and MLP, or in their place.
void add_latent_shapes(const ModelConfig& config, const RankShard& shard, LayerShapes& layer) {
    const LatentConfig& latent = config.latent;
    const int queries = shard.n_query_heads() * config.head_dim;
    const int of_queries = latent.query_rank > 0 ? latent.query_rank : queries;
    layer.qkv = {of_queries + latent.rank + latent.rotated_dim, config.hidden_size};
    if (latent.query_rank > 0) layer.query_up = {queries, latent.query_rank};
    layer.absorb = {latent.rank, latent.plain_dim};
    layer.expand = {latent.value_dim, latent.rank};
}

void add_expert_shapes(const ModelConfig& config, const RankShard& shard, LayerShapes& layer) {
    const int hidden = config.hidden_size, inner = static_cast<int>(shard.expert.size());
    const int shared = static_cast<int>(shard.shared_expert.size());
    layer.router = {config.experts.n_experts + (config.experts.gated_shared ? 1 : 0), hidden};
    layer.expert_gate = layer.expert_up = {inner, hidden};
    layer.expert_down = {hidden, inner, shard.expert.begin};
    if (config.experts.shared_size == 0) return;
    layer.shared_gate = layer.shared_up = {shared, hidden};
    layer.shared_down = {hidden, shared, shard.shared_expert.begin};
}

std::int64_t count_parameters(const ModelConfig& config, int experts_of_layer) {
    const ShardShapes shapes = shapes_of(config, shard_of(config, 0, 1));
    const LayerShapes& layer = shapes.layer;
    const std::int64_t wider = count(shapes.first_qkv) - count(layer.qkv);
    const std::int64_t of_encoder = config.has_encoder() ? parameter_count(encoder_of(config)) : 0;
    const int n_expert_layers = config.n_expert_layers();
    const std::int64_t of_experts = experts_of_layer * count(layer.expert_gate, layer.expert_up, layer.expert_down) +
                                    count(layer.router, layer.shared_gate, layer.shared_up, layer.shared_down);
    return config.n_attention_layers() * (count(layer.qkv, layer.output, layer.query_up, layer.cross_query,
                                                layer.cross_key_value, layer.cross_output) +
                                          config.n_heads * count(layer.absorb, layer.expand)) +
           config.n_linear_layers() * count(layer.linear_in, layer.linear_output) +
           (config.n_layers - n_expert_layers) * count(layer.gate, layer.up, layer.down) +
           n_expert_layers * of_experts + wider + of_encoder +
           config.fusion.n_residual_blocks * count(shapes.residual_block, shapes.residual_output) +
           std::max(config.fusion.n_cells - 1, 0) * count(shapes.cell) +
           count(shapes.embedding, shapes.head, shapes.project_in, shapes.project_out, shapes.feature_projection,
                 shapes.fusion, shapes.skip, shapes.first_cell) +
           shapes.floats -
           std::int64_t{n_expert_layers} * (config.experts.n_experts - experts_of_layer) * shapes.expert_floats;
}

} // namespace

int attention_input_size(const ModelConfig& config, int layer) {
    return config.fusion.kind == Fusion::attention && layer == 0 ? 2 * config.hidden_size : config.hidden_size;
}

ShardShapes shapes_of(const ModelConfig& config, const RankShard& shard) {
    const int hidden = config.hidden_size, embedding = config.embedding_size, dim = config.head_dim;
    const int mlp = static_cast<int>(shard.mlp.size()), outputs = static_cast<int>(shard.outputs.size());
    const FusionConfig& fusion = config.fusion;
    const int queries = shard.n_query_heads() * dim, attended = shard.n_query_heads() * config.attended_dim();
    ShardShapes shapes;
    if (config.has_embedding()) shapes.embedding = {static_cast<int>(shard.looked_up.size()), embedding};
    if (config.has_head()) shapes.head = {outputs, embedding};
    if (fusion.projects_features) shapes.feature_projection = {fusion.projected_size(hidden), fusion.feature_numbers()};
    const bool is_concat = fusion.kind == Fusion::concat;
    if (fusion.kind == Fusion::linear || is_concat) shapes.fusion = {hidden, fusion.joined_size(hidden)};
    if (is_concat) shapes.skip = shapes.fusion;
    if (fusion.kind == Fusion::cells) {
        shapes.first_cell = {3 * hidden, fusion.joined_size(hidden)};
        shapes.cell = {3 * hidden, hidden};
    }
    if (fusion.n_residual_blocks > 0)
        shapes.residual_block = {fusion.residual_size > 0 ? fusion.residual_size : hidden, hidden};
    if (fusion.residual_size > 0) shapes.residual_output = {hidden, fusion.residual_size};
    if (embedding != hidden) {
        shapes.project_in = {hidden, embedding};
        shapes.project_out = {embedding, hidden};
    }
    const int qkv = queries + 2 * shard.n_kv_heads() * dim + (config.gated_attention ? queries : 0);
    const std::int64_t first_attended = shard.heads.query_heads.begin * config.attended_dim();
    shapes.layer = {
        {qkv, hidden}, {hidden, attended, first_attended}, {}, {mlp, hidden}, {hidden, mlp, shard.mlp.begin}};
    if (config.gated_mlp) shapes.layer.gate = {mlp, hidden};
    if (config.is_latent()) add_latent_shapes(config, shard, shapes.layer);
    if (config.n_linear_layers() > 0) {
        const LinearAttentionConfig& linear = config.linear;
        const int keys = static_cast<int>(shard.linear_keys.size()), values = linear.group() * linear.value_dim;
        shapes.layer.linear_in = {keys * (linear.convolved_size() + values + 2 * linear.group()), hidden};
        shapes.layer.linear_output = {hidden, keys * values, shard.linear_keys.begin * values};
    }
    if (config.experts.n_experts > 0) add_expert_shapes(config, shard, shapes.layer);
    if (config.has_encoder()) {
        shapes.layer.cross_query = {attended, hidden};
        shapes.layer.cross_key_value = {2 * shard.n_kv_heads() * dim, hidden};
        shapes.layer.cross_output = {hidden, attended, first_attended};
    }
    shapes.first_qkv = {shapes.layer.qkv.outputs, attention_input_size(config, 0)};

    shapes.floats = layer_floats(config, shard, qkv) + (config.final_norm ? norm_floats(config) : 0) +
                    (config.head_bias ? outputs : 0);
    shapes.expert_floats = expert_floats(config, shard);
    if (config.is_draft_head()) shapes.floats += fusion_floats(config);
    if (config.embedding_norm) shapes.floats += norm_floats(config);
    if (config.positions == Positions::relative)
        shapes.floats += std::int64_t{config.relative.n_buckets} * shard.n_query_heads();
    if (config.positions == Positions::learned)
        shapes.floats += (std::int64_t{config.max_positions} + config.position_offset) * hidden;
    return shapes;
}

std::int64_t parameter_count(const ModelConfig& config) {
    return count_parameters(config, config.experts.n_experts);
}

std::int64_t active_parameter_count(const ModelConfig& config) {
    return count_parameters(config, config.experts.n_chosen);
}

} // namespace entrodraft::model
