#include "model/torch/workspace.h"

#include "model/weights/positions.h"

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

BookedTensors BookedTensors::without_numbers(const KvCache::Shape& shape, const at::TensorOptions& options) {
    KvCache::Shape no_heads = shape;
    no_heads.n_kv_heads = 0;
    return {no_heads, options};
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

// Returns whether the key is in the row's branch, or before all branches.
bool TorchWorkspace::is_of_branch(const Segment& segment, int row, int key) const {
    const int bit = key - segment.tree_begin;
    if (layout.pass.mask != Mask::by_parent || bit < 0) return true;
    return (layout.ancestors_of(row)[bit / 64] >> (bit % 64) & 1) != 0;
}

// [rows][keys]: for each key, the number of keys of the row's branch before it.
std::vector<std::int64_t> TorchWorkspace::key_numbers(const Segment& segment) const {
    const int keys = segment.cached + segment.end - segment.begin;
    std::vector<std::int64_t> numbers;
    for (int row = segment.begin; row < segment.end; ++row) {
        std::int64_t number = 0;
        for (int key = 0; key < keys; ++key) {
            numbers.push_back(number);
            number += is_of_branch(segment, row, key) ? 1 : 0;
        }
    }
    return numbers;
}

Tensor TorchWorkspace::mask_of(const Segment& segment, int window) const {
    const Pass& pass = layout.pass;
    const int rows = segment.end - segment.begin, keys = segment.cached + rows;
    std::vector<std::int64_t> numbers = key_numbers(segment);
    std::vector<float> mask(numbers.size(), -std::numeric_limits<float>::infinity());
    bool hides = false;
    for (int i = 0; i < rows; ++i) {
        const int row = segment.begin + i, n_places = segment.cached + layout.seen_end(row) - segment.begin;
        const int n_keys = pass.mask == Mask::by_parent ? pass.rows[index(row)].position + 1 : n_places;
        for (int key = 0; key < keys; ++key) {
            const std::size_t at = index(i) * index(keys) + index(key);
            const bool sees =
                key < n_places && is_of_branch(segment, row, key) && (window == 0 || numbers[at] >= n_keys - window);
            if (sees) mask[at] = 0;
            hides = hides || !sees;
        }
    }
    Tensor by_head; // [own query heads][rows][keys]
    const auto columns_of = [&](const Tensor& table) {
        return table.index_select(1, to_tensor(numbers, device)).view({-1, rows, keys});
    };
    if (alibi.defined()) by_head = columns_of(alibi);
    if (weights.outer.vector(Role::relative_biases).weight.defined()) {
        const int reach = config.relative.max_distance;
        for (std::size_t i = 0; i < numbers.size(); ++i) { // by the distance from each key to each row
            const std::size_t row = index(segment.begin) + i / index(keys);
            const int distance = pass.rows[row].position - static_cast<int>(numbers[i]);
            numbers[i] = std::clamp(distance, -reach, reach) + reach;
        }
        by_head = columns_of(weights.outer.vector(Role::relative_biases).weight);
    }
    if (!hides && !by_head.defined()) return {};
    Tensor added = to_tensor(mask, device).view({1, 1, rows, keys});
    if (by_head.defined())
        added = (by_head + added).view({1, -1, std::int64_t{group} * rows, keys});
    else if (group > 1)
        added = added.repeat({1, 1, group, 1});
    return config.attention_soft_cap > 0 ? added : added.to(type);
}

} // namespace entrodraft::model::torch
