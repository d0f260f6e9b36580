#include "model/weights/sources.h"

#include "model/files/tensor_values.h"
#include "model/weights/positions.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::model {
namespace {

// A rank's query heads, then its key heads, then its value heads, as they lie in the file.
std::vector<StoredSlice> qkv_rows(const ModelConfig& config, QkvForm form, const LayerNames& layer,
                                  const dist::HeadShard& heads) {
    const std::int64_t dim = config.head_dim, group = config.n_heads / config.n_kv_heads;
    const auto rows = [dim](dist::Slice of_heads, std::int64_t behind) {
        return dist::Slice{(behind + of_heads.begin) * dim, (behind + of_heads.end) * dim};
    };
    if (config.gated_attention) { // each head's queries, then its gate
        std::vector<StoredSlice> parts, gates;
        for (std::int64_t q = heads.query_heads.begin; q < heads.query_heads.end; ++q) {
            parts.push_back({&layer.query, rows({0, 1}, 2 * q)});
            gates.push_back({&layer.query, rows({0, 1}, 2 * q + 1)});
        }
        parts.push_back({&layer.key, rows(heads.kv_heads, 0)});
        parts.push_back({&layer.value, rows(heads.kv_heads, 0)});
        parts.insert(parts.end(), gates.begin(), gates.end());
        return parts;
    }
    if (form == QkvForm::separate)
        return {{&layer.query, rows(heads.query_heads, 0)},
                {&layer.key, rows(heads.kv_heads, 0)},
                {&layer.value, rows(heads.kv_heads, 0)}};
    if (form == QkvForm::stacked)
        return {{&layer.qkv, rows(heads.query_heads, 0)},
                {&layer.qkv, rows(heads.kv_heads, config.n_heads)},
                {&layer.qkv, rows(heads.kv_heads, config.n_heads + config.n_kv_heads)}};
    std::vector<StoredSlice> parts;
    for (std::int64_t q = heads.query_heads.begin; q < heads.query_heads.end;) {
        const std::int64_t of_group = q / group, end = std::min((of_group + 1) * group, heads.query_heads.end);
        parts.push_back({&layer.qkv, rows({q, end}, 2 * of_group)});
        q = end;
    }
    for (const std::int64_t which : {0, 1}) // key, value
        for (std::int64_t h = heads.kv_heads.begin; h < heads.kv_heads.end; ++h)
            parts.push_back({&layer.qkv, rows({0, 1}, h * (group + 2) + group + which)});
    return parts;
}

// Gate and up of a slice of the MLP's width.
StoredSlice gate_rows(const LayerNames& layer, dist::Slice width) {
    return layer.gate_up.weight.empty() ? StoredSlice{&layer.gate, width} : StoredSlice{&layer.gate_up, width};
}

// Queries, or the vector that they are made of, and that of keys and values.
std::vector<StoredSlice> latent_rows(const ModelConfig& config, const LayerNames& layer, const dist::HeadShard& heads) {
    const LatentConfig& latent = config.latent;
    const dist::Slice queries = {heads.query_heads.begin * config.head_dim, heads.query_heads.end * config.head_dim};
    std::vector<StoredSlice> rows = {{&layer.query, queries}};
    if (latent.query_rank > 0) rows = {{&layer.query_down, {0, latent.query_rank}}};
    rows.push_back({&layer.key_value_down, {0, latent.rank + latent.rotated_dim}});
    return rows;
}

// As LayerShapes::linear_in has them: in groups by key head.
std::vector<StoredSlice> linear_rows(const LinearAttentionConfig& linear, const LayerNames& layer, dist::Slice keys) {
    const std::int64_t group = linear.group(), dim = linear.key_dim, values = group * linear.value_dim;
    if (!layer.linear_in.weight.empty()) { // as they are stored
        const std::int64_t of_head = linear.convolved_size() + values;
        return {{&layer.linear_in, {keys.begin * of_head, keys.end * of_head}},
                {&layer.linear_gates, {keys.begin * 2 * group, keys.end * 2 * group}}};
    }
    std::vector<StoredSlice> rows;
    for (std::int64_t head = keys.begin; head < keys.end; ++head) {
        const std::int64_t query = head * dim, key = (linear.n_key_heads + head) * dim;
        const std::int64_t gate = head * values, value = 2 * linear.n_key_heads * dim + gate;
        rows.push_back({&layer.linear_qkv, {query, query + dim}});
        rows.push_back({&layer.linear_qkv, {key, key + dim}});
        rows.push_back({&layer.linear_qkv, {value, value + values}});
        rows.push_back({&layer.linear_value_gates, {gate, gate + values}});
    }
    for (std::int64_t head = keys.begin; head < keys.end; ++head)
        for (const TensorNames* each : {&layer.linear_steps, &layer.linear_decays})
            rows.push_back({each, {head * group, (head + 1) * group}});
    return rows;
}

StoredSlice up_rows(const ModelConfig& config, const LayerNames& layer, dist::Slice width) {
    if (layer.gate_up.weight.empty()) return {&layer.up, width};
    return {&layer.gate_up, {config.intermediate_size + width.begin, config.intermediate_size + width.end}};
}

std::vector<float> read_convolution(const Checkpoint& checkpoint, const LinearAttentionConfig& linear,
                                    const LayerNames& layer, const RankShard& shard) {
    const std::int64_t keys = std::int64_t{linear.n_key_heads} * linear.key_dim, n = linear.n_convolved;
    const std::int64_t values = std::int64_t{linear.group()} * linear.value_dim, channels = linear.convolved_size();
    std::vector<float> all(static_cast<std::size_t>(shard.linear_keys.size() * n * channels)), stored;
    float* to = all.data();
    for (std::int64_t head = shard.linear_keys.begin; head < shard.linear_keys.end; ++head, to += n * channels) {
        const dist::Slice of_key = {head * linear.key_dim, (head + 1) * linear.key_dim};
        std::int64_t channel = 0;
        for (const dist::Slice part : {of_key, dist::Slice{keys + of_key.begin, keys + of_key.end},
                                       dist::Slice{2 * keys + head * values, 2 * keys + (head + 1) * values}}) {
            stored.resize(static_cast<std::size_t>(part.size() * n));
            read_floats(checkpoint.tensor(layer.linear_convolution.weight), {part.begin * n, part.end * n},
                        stored.data());
            for (std::size_t i = 0; i < stored.size(); ++i)
                to[static_cast<std::int64_t>(i) % n * channels + channel + static_cast<std::int64_t>(i) / n] =
                    stored[i];
            channel += part.size();
        }
    }
    return all;
}

} // namespace

LayerSources layer_sources(const ModelConfig& config, const ModelNames& names, const LayerNames& layer, int number,
                           const RankShard& shard) {
    const dist::Slice hidden = {0, config.hidden_size};
    const dist::Slice attended = {shard.heads.query_heads.begin * config.attended_dim(),
                                  shard.heads.query_heads.end * config.attended_dim()};
    const bool turned = names.transposed;
    LayerSources sources;
    sources.qkv = {config.is_latent() ? latent_rows(config, layer, shard.heads)
                                      : qkv_rows(config, names.qkv, layer, shard.heads),
                   {0, attention_input_size(config, number)},
                   turned};
    sources.output = {{{&layer.output, hidden}}, attended, turned};
    if (config.is_linear(number)) {
        const LinearAttentionConfig& linear = config.linear;
        const dist::Slice keys = shard.linear_keys;
        const std::int64_t values = std::int64_t{linear.group()} * linear.value_dim;
        sources.qkv = {linear_rows(linear, layer, keys), hidden};
        sources.output = {{{&layer.linear_output, hidden}}, {keys.begin * values, keys.end * values}};
    }
    if (config.has_experts(number)) {
        if (config.experts.shared_size == 0) return sources;
        sources.gate = {{{&layer.shared_gate, shard.shared_expert}}, hidden};
        sources.up = {{{&layer.shared_up, shard.shared_expert}}, hidden};
        sources.down = {{{&layer.shared_down, hidden}}, shard.shared_expert};
        return sources;
    }
    if (config.gated_mlp) sources.gate = {{gate_rows(layer, shard.mlp)}, hidden, turned};
    sources.up = {{up_rows(config, layer, shard.mlp)}, hidden, turned};
    sources.down = {{{&layer.down, hidden}}, shard.mlp, turned};
    return sources;
}

ExpertSources expert_sources(const ModelConfig& config, const ModelNames& names, const LayerNames& layer,
                             const ExpertNames& of_expert, int expert, const RankShard& shard) {
    const dist::Slice hidden = {0, config.hidden_size}, width = shard.expert;
    if (layer.expert_down.weight.empty())
        return {{{{&of_expert.gate, width}}, hidden},
                {{{&of_expert.up, width}}, hidden},
                {{{&of_expert.down, hidden}}, width}};
    // Rows of all experts, one after another.
    const bool turned = names.transposed_experts, alternates = config.experts.alternates;
    const std::int64_t inner = config.experts.intermediate_size, down = hidden.size() * expert;
    const std::int64_t step = alternates ? 2 : 1, gate = 2 * inner * expert, up = gate + (alternates ? 1 : inner);
    const auto rows_of = [&](std::int64_t first) {
        const std::int64_t begin = first + step * width.begin;
        return std::vector<StoredSlice>{{&layer.expert_gate_up, {begin, begin + width.size()}, step}};
    };
    return {{rows_of(gate), hidden, turned},
            {rows_of(up), hidden, turned},
            {{{&layer.expert_down, {down, down + hidden.size()}}}, width, turned}};
}

MatrixSource router_source(const ModelConfig& config, const LayerNames& layer) {
    MatrixSource source = {{{&layer.router, {0, config.experts.n_experts}}}, {0, config.hidden_size}};
    if (config.experts.gated_shared) source.rows.push_back({&layer.shared_scale, {0, 1}});
    return source;
}

LatentSources latent_sources(const ModelConfig& config, const LayerNames& layer, const RankShard& shard) {
    const LatentConfig& latent = config.latent;
    const dist::Slice heads = shard.heads.query_heads, vector = {0, latent.rank};
    LatentSources sources;
    if (latent.query_rank > 0)
        sources.query_up = {{{&layer.query, {heads.begin * config.head_dim, heads.end * config.head_dim}}},
                            {0, latent.query_rank}};
    for (std::int64_t head = heads.begin; head < heads.end; ++head) {
        const std::int64_t keys = head * (latent.plain_dim + latent.value_dim), values = keys + latent.plain_dim;
        sources.absorb.push_back({{{&layer.key_value_up, vector}}, {keys, values}, true}); // stored the other way round
        sources.expand.push_back({{{&layer.key_value_up, {values, values + latent.value_dim}}}, vector});
    }
    return sources;
}

CrossSources cross_sources(const ModelConfig& config, const LayerNames& layer, const RankShard& shard) {
    const dist::Slice hidden = {0, config.hidden_size};
    const auto in_rows = [&](dist::Slice heads) {
        return dist::Slice{heads.begin * config.head_dim, heads.end * config.head_dim};
    };
    const dist::Slice queries = in_rows(shard.heads.query_heads), keys = in_rows(shard.heads.kv_heads);
    return {{{{&layer.cross_query, queries}}, hidden},
            {{{&layer.cross_key, keys}, {&layer.cross_value, keys}}, hidden},
            {{{&layer.cross_output, hidden}}, queries}};
}

OuterSources outer_sources(const ModelConfig& config, const ModelNames& names, const RankShard& shard) {
    const dist::Slice hidden = {0, config.hidden_size}, embedded = {0, config.embedding_size};
    OuterSources sources;
    const FusionConfig& fusion = config.fusion;
    if (config.has_embedding()) sources.embedding = {{{&names.embedding, shard.vocab}}, embedded};
    if (config.has_head()) sources.head = {{{&names.head, shard.outputs}}, embedded};
    for (const TensorNames& each : names.fusion.feature_projections)
        sources.feature_projection.rows.push_back({&each, hidden});
    sources.feature_projection.inputs = {0, fusion.feature_numbers()};
    const dist::Slice joined = {0, fusion.joined_size(config.hidden_size)};
    if (!names.fusion.linear.weight.empty()) sources.fusion = {{{&names.fusion.linear, hidden}}, joined};
    if (!names.fusion.skip.weight.empty()) sources.skip = {{{&names.fusion.skip, hidden}}, joined};
    const int width = config.hidden_size;
    for (const TensorNames& cell : names.fusion.cells) // a forget gate has nothing to forget
        sources.cells.push_back(
            {{{&cell, {0, width}}, {&cell, {2 * width, 4 * width}}}, sources.cells.empty() ? joined : hidden});
    const dist::Slice inner = {0, fusion.residual_size};
    for (const TensorNames& block : names.fusion.residual_blocks)
        sources.residual_blocks.push_back({{{&block, inner.size() > 0 ? inner : hidden}}, hidden});
    for (const TensorNames& output : names.fusion.residual_outputs)
        sources.residual_outputs.push_back({{{&output, hidden}}, inner});
    if (config.embedding_size != config.hidden_size) {
        sources.project_in = {{{&names.project_in, hidden}}, embedded};
        sources.project_out = {{{&names.project_out, embedded}}, hidden};
    }
    return sources;
}

DeltaNetVectors read_delta_net(const Checkpoint& checkpoint, const ModelConfig& config, const LayerNames& layer,
                               const RankShard& shard) {
    const LinearAttentionConfig& linear = config.linear;
    const dist::Slice heads = {shard.linear_keys.begin * linear.group(), shard.linear_keys.end * linear.group()};
    const auto of_heads = [&](const TensorNames& stored) {
        std::vector<float> values(static_cast<std::size_t>(heads.size()));
        read_floats(checkpoint.tensor(stored.weight), heads, values.data());
        return values;
    };
    DeltaNetVectors vectors = {read_convolution(checkpoint, linear, layer, shard), of_heads(layer.linear_decay),
                               of_heads(layer.linear_decay_bias), read_norm(checkpoint, layer.linear_norm, 0)};
    for (float& rate : vectors.decay_rates)
        rate = -std::exp(rate);
    return vectors;
}

std::vector<float> read_vector(const Checkpoint& checkpoint, const std::string& name) {
    const TensorView& tensor = checkpoint.tensor(name);
    std::int64_t count = 1;
    for (const std::int64_t dim : tensor.shape)
        count *= dim;
    std::vector<float> values(static_cast<std::size_t>(count));
    read_floats(tensor, {0, count}, values.data());
    return values;
}

std::vector<float> read_biases(const Checkpoint& checkpoint, const std::vector<StoredSlice>& rows) {
    std::vector<float> values;
    for (const StoredSlice& part : rows) {
        if (part.tensor->bias.empty()) return {};
        const std::size_t at = values.size();
        values.resize(at + static_cast<std::size_t>(part.rows.size()));
        for (std::int64_t i = 0; i < part.rows.size() && part.step > 1; ++i) {
            const std::int64_t row = part.rows.begin + i * part.step;
            read_floats(checkpoint.tensor(part.tensor->bias), {row, row + 1}, values.data() + at + i);
        }
        if (part.step == 1) read_floats(checkpoint.tensor(part.tensor->bias), part.rows, values.data() + at);
        if (part.tensor->second_bias.empty()) continue;
        std::vector<float> more(values.size() - at);
        read_floats(checkpoint.tensor(part.tensor->second_bias), part.rows, more.data());
        for (std::size_t i = 0; i < more.size(); ++i)
            values[at + i] += more[i];
    }
    return values;
}

NormWeights read_norm(const Checkpoint& checkpoint, const TensorNames& names, float offset, float scale) {
    NormWeights norm;
    if (!names.weight.empty()) norm.weight = read_vector(checkpoint, names.weight);
    if (!names.bias.empty()) norm.bias = read_vector(checkpoint, names.bias);
    for (float& weight : norm.weight)
        weight = (weight + offset) * scale;
    for (float& bias : norm.bias)
        bias *= scale;
    return norm;
}

std::vector<float> read_sinks(const Checkpoint& checkpoint, const LayerNames& names, const RankShard& shard) {
    if (names.sinks.weight.empty()) return {};
    std::vector<float> sinks(static_cast<std::size_t>(shard.n_query_heads()));
    read_floats(checkpoint.tensor(names.sinks.weight), shard.heads.query_heads, sinks.data());
    return sinks;
}

NormWeights own_heads_of(const ModelConfig& config, NormWeights norm, const dist::Slice& heads) {
    if (config.query_key_norm != QueryKeyNorm::row) return norm;
    const auto begin = norm.weight.begin();
    return {{begin + heads.begin * config.head_dim, begin + heads.end * config.head_dim}, {}};
}

std::vector<float> read_positions(const Checkpoint& checkpoint, const ModelConfig& config, const ModelNames& names) {
    if (!names.positions.weight.empty()) return read_vector(checkpoint, names.positions.weight);
    if (config.positions != Positions::sinusoidal) return {};
    return sinusoidal_table(config.max_positions, config.hidden_size);
}

std::vector<std::int64_t> relative_bias_indices(const ModelConfig& config, const RankShard& shard) {
    std::vector<std::int64_t> indices;
    const int reach = config.relative.max_distance;
    const dist::Slice heads = shard.heads.query_heads;
    for (std::int64_t head = heads.begin; head < heads.end; ++head)
        for (int distance = -reach; distance <= reach; ++distance) {
            const std::int64_t bucket = relative_bucket(config.relative, distance, config.is_encoder);
            indices.push_back(bucket * config.n_heads + head);
        }
    return indices;
}

std::vector<float> read_relative_biases(const Checkpoint& checkpoint, const ModelConfig& config,
                                        const ModelNames& names, const RankShard& shard) {
    std::vector<float> by_distance;
    if (names.relative_bias.weight.empty()) return by_distance;
    const std::vector<float> by_bucket = read_vector(checkpoint, names.relative_bias.weight);
    for (const std::int64_t index : relative_bias_indices(config, shard))
        by_distance.push_back(by_bucket[static_cast<std::size_t>(index)]);
    return by_distance;
}

std::vector<float> read_head_bias(const Checkpoint& checkpoint, const ModelConfig& config, const ModelNames& names,
                                  const RankShard& shard) {
    if (config.is_encoder || names.head.bias.empty()) return {};
    std::vector<float> biases = read_biases(checkpoint, {{&names.head, shard.outputs}});
    biases.resize(static_cast<std::size_t>(shard.outputs.size()));
    return biases;
}

} // namespace entrodraft::model
