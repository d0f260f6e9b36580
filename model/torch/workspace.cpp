#include "model/torch/workspace.h"

#include "model/positions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <algorithm>
#include <c10/core/InferenceMode.h>
#include <limits>
#include <utility>

namespace entrodraft::model::torch {

using at::Tensor;

TensorCache::TensorCache(const KvCache::Shape& shape, const at::TensorOptions& options)
    : numbers_(at::empty(
          {shape.n_layers, 2, shape.n_slots, shape.n_kv_heads, KvCache::whole_blocks(shape.capacity), shape.head_dim},
          options)) {}

void TensorCache::copy(int from_slot, int from, int to_slot, int to, int count) {
    const c10::InferenceMode mode;
    const auto part = [&](int slot, int at) { return numbers_.select(2, slot).narrow(3, at, count); };
    part(to_slot, to).copy_(part(from_slot, from));
}

void TensorCache::move(int slot, std::span<const int> from, int to) {
    const c10::InferenceMode mode;
    const Tensor positions = numbers_.select(2, slot);
    const std::vector<std::int64_t> rows(from.begin(), from.end());
    positions.narrow(3, to, std::ssize(from)).copy_(positions.index_select(3, to_tensor(rows, numbers_.device())));
}

BookedTensors::BookedTensors(const KvCache::Shape& shape, const at::TensorOptions& options) {
    auto memory = std::make_unique<TensorCache>(shape, options);
    numbers = memory->numbers();
    books = std::make_shared<KvCache>(shape, std::move(memory));
}

TorchWorkspace::TorchWorkspace(const ModelConfig& model, const RankShard& held, const TensorWeights& read,
                               const TensorMatrix& embedded_by, const BookedTensors& texts,
                               const BookedTensors& read_sources, dist::Communicator& ranks)
    : config(model), shard(held), weights(read), embedding(embedded_by), cache(texts), sources(read_sources), tp(ranks),
      type(cache.numbers.scalar_type()), device(cache.numbers.device()) {
    const dist::Slice queries = shard.heads.query_heads;
    std::vector<std::int64_t> kv_head_of;
    for (std::int64_t head = queries.begin; head < queries.end; ++head)
        kv_head_of.push_back(head / (config.n_heads / config.n_kv_heads) - shard.heads.kv_heads.begin);
    const int n_kv_heads = shard.n_kv_heads();
    group = shard.n_query_heads() / n_kv_heads;
    bool is_even = group * n_kv_heads == shard.n_query_heads();
    for (std::size_t i = 0; i < kv_head_of.size(); ++i)
        is_even = is_even && kv_head_of[i] == static_cast<std::int64_t>(i) / group;
    if (!is_even) {
        group = 1;
        kv_heads = to_tensor(kv_head_of, device);
    }
    if (config.positions == Positions::rotary) angles = angles_of(config.rope);
    if (std::ranges::find(config.layer_ropes, LayerRope::local) != config.layer_ropes.end())
        local_angles = angles_of(config.local_rope);
    if (config.positions == Positions::alibi) {
        const std::vector<float> slopes = alibi_slopes(config.n_heads, config.scaled_alibi);
        const Tensor own =
            to_tensor(std::vector<float>(slopes.begin() + queries.begin, slopes.begin() + queries.end), device);
        const Tensor places = at::arange(cache.numbers.size(4), at::TensorOptions(device).dtype(at::kFloat));
        alibi = own.unsqueeze(1) * places;
        // Falcon rounds it to bfloat16, adds it to the product, and scales both.
        if (config.scaled_alibi) alibi = alibi.to(at::kBFloat16).to(at::kFloat) * config.attention_scale;
    }
}

TorchAngles TorchWorkspace::angles_of(const Rope& rope) const {
    RotaryTable table(rope);
    table.cover(config.max_positions - 1);
    const std::int64_t half = rope.dims / 2;
    const std::size_t count = index(config.max_positions) * static_cast<std::size_t>(half);
    const auto all = [&](const float* from) {
        return to_tensor(std::vector<float>(from, from + count), device).view({-1, half});
    };
    return {all(table.cosines(0)), all(table.sines(0))};
}

Tensor TorchWorkspace::mask_of(const Segment& segment, int window) const {
    const Pass& pass = layout.pass;
    const int rows = segment.end - segment.begin, keys = segment.cached + rows;
    std::vector<float> mask(index(rows) * index(keys), -std::numeric_limits<float>::infinity());
    bool hides = false;
    for (int i = 0; i < rows; ++i) {
        const int row = segment.begin + i;
        const bool in_tree = pass.mask == Mask::by_parent;
        const int n_keys = segment.cached + layout.seen_end(row) - segment.begin;
        // In a tree, the cached keys within reach; the tree itself is narrower than any window.
        const int end = in_tree ? pass.rows[index(row)].position + 1 : n_keys;
        int first = window > 0 ? std::max(0, end - window) : 0;
        if (in_tree) first = std::min(first, segment.tree_begin);
        const std::uint64_t* ancestors = in_tree ? layout.ancestors_of(row) : nullptr;
        for (int j = 0; j < keys; ++j) {
            const int in_tree_at = j - segment.tree_begin;
            const bool sees =
                j >= first && j < n_keys &&
                (!in_tree || in_tree_at < 0 || (ancestors[in_tree_at / 64] >> (in_tree_at % 64) & 1) != 0);
            if (sees) mask[index(i) * index(keys) + index(j)] = 0;
            hides = hides || !sees;
        }
    }
    Tensor by_head; // [own query heads][rows or 1][keys]
    if (alibi.defined()) by_head = alibi.narrow(1, 0, keys).unsqueeze(1);
    if (weights.relative_biases.defined()) by_head = relative_biases(segment);
    if (!hides && !by_head.defined()) return {};
    Tensor added = to_tensor(mask, device).view({1, 1, rows, keys});
    if (by_head.defined())
        added = (by_head + added).view({1, -1, std::int64_t{group} * rows, keys});
    else if (group > 1)
        added = added.repeat({1, 1, group, 1});
    return config.attention_soft_cap > 0 ? added : added.to(type);
}

// By how far each key is behind each row, [own query heads][rows][keys]. In a tree the keys of other branches do not
// count.
Tensor TorchWorkspace::relative_biases(const Segment& segment) const {
    const int rows = segment.end - segment.begin, keys = segment.cached + rows, reach = config.relative.max_distance;
    std::vector<std::int64_t> columns; // of the table
    for (int row = segment.begin; row < segment.end; ++row) {
        const std::uint64_t* ancestors = layout.pass.mask == Mask::by_parent ? layout.ancestors_of(row) : nullptr;
        int key_position = 0;
        for (int j = 0; j < keys; ++j) {
            columns.push_back(std::clamp(layout.pass.rows[index(row)].position - key_position, -reach, reach) + reach);
            const int bit = j - segment.tree_begin;
            const bool is_seen = ancestors == nullptr || bit < 0 || (ancestors[bit / 64] >> (bit % 64) & 1) != 0;
            key_position += is_seen ? 1 : 0;
        }
    }
    return weights.relative_biases.index_select(1, to_tensor(columns, device)).view({-1, rows, keys});
}

} // namespace entrodraft::model::torch
