#include "model/cpu/workspace.h"

#include <cmath>

namespace entrodraft::model {

CpuWorkspace::CpuWorkspace(const ModelConfig& model, const RankShard& held, const ModelWeights& packed, KvCache& cache,
                           int threads, const CpuTextShape& text)
    : n_threads(threads), config(model), shard(held), weights(packed), texts(cache),
      embedding(text.embedding.table != nullptr ? text.embedding : packed.embedding()),
      attention(model, held, cache, threads,
                {model.is_encoder, nullptr, packed.outer.vector(Role::relative_biases).weight, text.chunks}) {
    layout.retrieves = text.chunks != nullptr;
    if (text.sources) cross_attention.emplace(model, held, *text.sources, threads, Attention::Reads{true, &cache});
    const auto rows_of = [](std::size_t width) { return Buffer(kMaxRows * width * sizeof(float)); };
    const auto text_rows_of = [&](std::size_t width) { return Buffer(index(text.n_rows) * width * sizeof(float)); };
    x = text_rows_of(padded(config.hidden_size));
    if (config.block == Block::sandwich || config.block == Block::inner_norm || config.n_expert_layers() > 0)
        delta = rows_of(padded(config.hidden_size));
    if (config.embedding_size != config.hidden_size) embedded = rows_of(padded(config.embedding_size));
    int widest = std::max(config.hidden_size, config.embedding_size);
    std::size_t mlp_stride = 0; // layers with experts differ from those without
    int attended_numbers = shard.n_query_heads() * config.attended_dim();
    for (const HeldWeights& layer : weights.layers) {
        qkv_stride = std::max(qkv_stride, layer[Role::qkv].y_stride());
        attended_numbers = std::max(attended_numbers, layer[Role::output].matrix().k());
        mlp_stride = std::max(mlp_stride, layer[Role::up].y_stride());
        widest = std::max({widest, layer[Role::output].matrix().k(), layer[Role::down].matrix().k()});
    }
    if (!weights.layers.empty()) {
        qkv = text_rows_of(qkv_stride);
        attended = rows_of(index(attended_numbers));
        up = rows_of(mlp_stride);
        if (config.gated_mlp) gate = rows_of(mlp_stride);
    }
    if (config.n_linear_layers() > 0) {
        const std::size_t key_dim = index(config.linear.key_dim);
        query_scale.assign(key_dim, 1 / static_cast<float>(config.linear.key_dim));
        key_scale.assign(key_dim, 1 / std::sqrt(static_cast<float>(config.linear.key_dim)));
    }
    if (config.query_key_norm == QueryKeyNorm::row) squares = rows_of(2);
    widest = std::max(widest, make_buffers_of_some());
    if (!config.is_encoder) logits = rows_of(index(weights.head().n_padded()));
    normed = rows_of(index(threads) * index(config.hidden_size));
    scratch_floats = kernels::linear_scratch_floats(kMaxRows, scratch_inputs(widest));
    scratch = Buffer(index(threads) * scratch_floats * sizeof(float));
    lane_stats.resize(index(threads) * kMaxRows);
    summary_parts.resize(index(threads) * kMaxRows);
}

int CpuWorkspace::make_buffers_of_some() {
    const auto rows_of = [](std::size_t width) { return Buffer(kMaxRows * width * sizeof(float)); };
    int widest = 0;
    if (config.is_latent()) {
        const std::size_t heads = index(shard.n_query_heads());
        queries = rows_of(padded(shard.n_query_heads() * config.head_dim));
        latent_queries = rows_of(heads * index(config.key_dim()));
        latent_attended = rows_of(heads * index(config.value_dim()));
        widest = std::max({config.latent.query_rank, config.latent.rank, config.latent.plain_dim});
    }
    if (config.n_expert_layers() > 0) {
        const ExpertsConfig& experts = config.experts;
        const std::size_t inner = padded(static_cast<int>(shard.expert.size()));
        router_products = rows_of(padded(experts.n_experts + 1));
        chosen.resize(index(kMaxRows) * index(experts.n_chosen));
        expert_rows.resize(index(n_threads));
        expert_gate = rows_of(index(experts.n_chosen) * inner);
        expert_up = rows_of(index(experts.n_chosen) * inner);
        expert_from = rows_of(index(n_threads) * index(config.hidden_size));
        widest = std::max(widest, static_cast<int>(inner));
    }
    if (config.is_draft_head()) {
        const FusionConfig& fusion = config.fusion;
        features_stride =
            padded(std::max({fusion.projected_size(config.hidden_size), fusion.width(), fusion.residual_size}));
        features = rows_of(features_stride);
        wide = rows_of(joined_width(config));
        widest = std::max({widest, static_cast<int>(joined_width(config)), fusion.residual_size});
    }
    return widest;
}

void CpuWorkspace::begin_pass(const Pass& pass, KvCache& cache) {
    layout.set(pass, config, cache);
    if (config.n_linear_layers() > 0) plan_delta_nets(cache.recurrent());
    attention.cover(layout.last_position);
    hidden.resize(pass.hidden_layers.size() * pass.rows.size() * index(config.hidden_size));
}

void CpuWorkspace::plan_delta_nets(RecurrentStates& states) {
    delta_plans.clear();
    int n_states = 0;
    for (const Segment& segment : layout.segments) {
        delta_plans.push_back(delta_plan(layout, segment, states));
        n_states = std::max(n_states, delta_plans.back().n_states);
    }
    const LinearAttentionConfig& linear = config.linear;
    const std::size_t floats = index(n_states * linear.group()) * index(linear.key_dim) * index(linear.value_dim);
    if (floats <= delta_state_floats) return;
    delta_state_floats = floats;
    delta_states = Buffer(index(n_threads) * floats * sizeof(float));
}

// Merges the threads' parts of each row.
void CpuWorkspace::merge_summaries() {
    summaries.clear();
    if (layout.pass.needs.summary == LogitSummary::none) return;
    for (std::size_t r = 0; r < layout.pass.logit_rows.size(); ++r) {
        LogitStats whole = summary_parts[r];
        for (int thread = 1; thread < n_threads; ++thread) {
            const LogitStats& part = summary_parts[index(thread) * kMaxRows + r];
            if (part.arg_max >= 0) whole = whole.arg_max >= 0 ? merge(whole, part) : part;
        }
        if (!config.output_tokens.empty() && whole.arg_max >= 0)
            whole.arg_max = config.output_tokens[index(whole.arg_max)];
        summaries.push_back(whole);
    }
}

} // namespace entrodraft::model
