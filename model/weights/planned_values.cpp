#include "model/weights/planned_values.h"

#include "model/files/tensor_values.h"
#include "model/weights/positions.h"

#include <cmath>

namespace entrodraft::model {
namespace {

std::vector<float> read_parts(const TensorView& tensor, const std::vector<dist::Slice>& parts) {
    std::vector<float> values;
    for (const dist::Slice& part : parts) {
        values.resize(values.size() + static_cast<std::size_t>(part.size()));
        read_floats(tensor, part, values.data() + values.size() - part.size());
    }
    return values;
}

// The tensor is stored as [channels][1][n_convolved]: all queries, all keys, all values.
std::vector<float> read_convolution(const TensorView& tensor, const LinearAttentionConfig& linear, dist::Slice heads) {
    const std::int64_t keys = std::int64_t{linear.n_key_heads} * linear.key_dim, n = linear.n_convolved;
    const std::int64_t values = std::int64_t{linear.group()} * linear.value_dim, channels = linear.convolved_size();
    std::vector<float> all(static_cast<std::size_t>(heads.size() * n * channels));
    float* to = all.data();
    for (std::int64_t head = heads.begin; head < heads.end; ++head, to += n * channels) {
        const std::int64_t key = head * linear.key_dim, value = 2 * keys + head * values;
        const std::vector<float> stored = read_parts(tensor, {{key * n, (key + linear.key_dim) * n},
                                                              {(keys + key) * n, (keys + key + linear.key_dim) * n},
                                                              {value * n, (value + values) * n}});
        for (std::int64_t i = 0; i < std::ssize(stored); ++i)
            to[i % n * channels + i / n] = stored[i];
    }
    return all;
}

} // namespace

VectorValues read_planned(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                          const PlannedVector& vector) {
    if (vector.tensor == nullptr) return {sinusoidal_table(config.max_positions, config.hidden_size), {}};
    const auto read = [&](const std::string& name) -> std::vector<float> {
        if (name.empty()) return {};
        return vector.parts.empty() ? read_vector(checkpoint, name) : read_parts(checkpoint.tensor(name), vector.parts);
    };
    const TensorNames& names = vector.tensor->names;
    if (vector.role == Role::convolution)
        return {read_convolution(checkpoint.tensor(names.weight), config.linear, shard.linear_keys), {}};
    VectorValues values = {read(names.weight), read(names.bias)};
    if (vector.role == Role::relative_biases) {
        std::vector<float> by_distance;
        for (const std::int64_t index : relative_bias_indices(config, shard))
            by_distance.push_back(values.weight[index]);
        return {std::move(by_distance), {}};
    }
    for (float& weight : values.weight)
        weight = vector.role == Role::decay_rates ? -std::exp(weight) : (weight + vector.offset) * vector.scale;
    for (float& bias : values.bias)
        bias *= vector.scale;
    return values;
}

std::vector<float> read_biases(const Checkpoint& checkpoint, const PlannedMatrix& matrix) {
    std::vector<float> values;
    if (!matrix.has_bias()) return values;
    const auto read = [&](const std::string& name, const StoredSlice& slice) {
        std::vector<dist::Slice> rows = {slice.rows};
        if (slice.step > 1) rows.clear();
        for (std::int64_t i = 0; slice.step > 1 && i < slice.rows.size(); ++i)
            rows.push_back({slice.rows.begin + i * slice.step, slice.rows.begin + i * slice.step + 1});
        return read_parts(checkpoint.tensor(name), rows);
    };
    for (const StoredSlice& slice : matrix.rows) {
        const TensorNames& names = slice.tensor->names;
        std::vector<float> biases = read(names.bias, slice);
        if (!names.second_bias.empty()) {
            const std::vector<float> more = read(names.second_bias, slice);
            for (std::size_t i = 0; i < more.size(); ++i)
                biases[i] += more[i];
        }
        values.insert(values.end(), biases.begin(), biases.end());
    }
    return values;
}

std::vector<float> read_vector(const Checkpoint& checkpoint, const std::string& name) {
    const TensorView& tensor = checkpoint.tensor(name);
    std::int64_t count = 1;
    for (const std::int64_t dim : tensor.shape)
        count *= dim;
    return read_parts(tensor, {{0, count}});
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

} // namespace entrodraft::model
