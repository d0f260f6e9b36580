#include "model/cpu/attention.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::model {

Attention::Attention(const ModelConfig& config, const RankShard& shard, KvCache& cache, int n_threads,
                     const Reads& reads)
    : config_(&config), cache_(&cache), reads_all_(reads.all), texts_(reads.texts), chunks_(reads.chunks),
      n_threads_(n_threads), n_query_heads_(shard.n_query_heads()) {
    const dist::Slice queries = shard.heads.query_heads, keys = shard.heads.kv_heads;
    const std::int64_t group = config.n_heads / config.n_kv_heads;
    for (std::int64_t h = keys.begin; h < keys.end; ++h) {
        const std::int64_t first = std::max(h * group, queries.begin), end = std::min((h + 1) * group, queries.end);
        groups_.push_back({static_cast<int>(first - queries.begin), static_cast<int>(end - first)});
    }
    const std::size_t row = index(cache.shape().capacity) * sizeof(float);
    scores_ = Buffer(index(n_threads) * kernels::kMaxQueries * row);
    if (texts_) return; // a source's positions are its encoder's
    row_biases_ = Buffer(scores_.bytes());
    relative_ = reads.relative_biases;
    if (config.positions == Positions::rotary) rotary_.emplace(config.rope);
    if (std::ranges::find(config.layer_ropes, LayerRope::local) != config.layer_ropes.end())
        local_rotary_.emplace(config.local_rope);
    if (config.positions != Positions::alibi) return;
    const std::vector<float> all = alibi_slopes(config.n_heads, config.scaled_alibi);
    slopes_.assign(all.begin() + queries.begin, all.begin() + queries.end);
    biases_ = Buffer(slopes_.size() * row);
}

void Attention::cover(int position) {
    if (rotary_) rotary_->cover(position);
    if (local_rotary_) local_rotary_->cover(position);
    if (slopes_.empty()) return;
    const int until = std::min((position / 256 + 1) * 256, cache_->shape().capacity);
    for (std::size_t head = 0; head < slopes_.size(); ++head) {
        float* biases = biases_.as<float>() + head * index(cache_->shape().capacity);
        for (int j = covered_; j < until; ++j)
            biases[j] = alibi_bias(*config_, slopes_[head], j);
    }
    covered_ = std::max(covered_, until);
}

// If key heads divide by threads, each thread stores the keys that it alone will read. Then no barrier is needed
// between storing and reading.
void Attention::append(const PassContext& context, const Task& task) {
    const PassLayout& layout = *task.layout;
    const int n_kv_heads = static_cast<int>(groups_.size());
    const dist::Slice my_heads = dist::even_slice(n_kv_heads, context.thread, n_threads_);
    const dist::Slice my_rows = dist::even_slice(layout.rows(), context.thread, n_threads_);
    for (const Segment& segment : layout.segments) {
        for (int r = segment.begin; r < segment.end; ++r) {
            if (!own_heads() && !my_rows.contains(r)) continue;
            for (int h = 0; h < n_kv_heads; ++h)
                if (!own_heads() || my_heads.contains(h)) place(context, task, segment, r, h);
        }
    }
    if (!own_heads()) context.barrier();
}

void Attention::attend(const PassContext& context, const Task& task) {
    const std::span<const Retrieval> retrievals = task.layout->pass.retrievals;
    const bool retrieves = chunks_ && !retrievals.empty() && config_->window(task.layer) == 0;
    for (std::size_t i = 0; retrieves && i < retrievals.size(); ++i)
        retrieve(context, task, retrievals[i]);
    if (retrieves && !own_heads()) context.barrier();
    for (const Bundle& bundle : task.layout->bundles)
        attend(context, task, bundle);
}

// Scores chunks with the queries of the slot's last row. Each thread does so for its key heads.
void Attention::retrieve(const PassContext& context, const Task& task, const Retrieval& of) {
    const auto segment = std::ranges::find(task.layout->segments, of.slot, &Segment::slot);
    const float* queries = task.qkv.row(segment->end - 1);
    const dist::Slice my_heads = dist::even_slice(static_cast<int>(groups_.size()), context.thread, n_threads_);
    for (auto h = static_cast<int>(my_heads.begin); h < my_heads.end; ++h) {
        std::vector<const float*> rows;
        for (int q = 0; q < groups_[index(h)].n_queries; ++q)
            rows.push_back(queries + (groups_[index(h)].first_query + q) * config_->key_dim());
        chunks_->retrieve(*context.kernels, context.thread, of, task.cache_layer, h,
                          {rows, config_->attention_scale, config_->attention_soft_cap});
    }
}

// Norms and rotates the key head and its query heads of one row, and puts key and value into the cache.
void Attention::place(const PassContext& context, const Task& task, const Segment& segment, int row, int kv_head) {
    const kernels::Kernels& kernels = *context.kernels;
    const int dim = config_->head_dim, position = task.layout->pass.rows[index(row)].position;
    float* base = task.qkv.row(row);
    const auto prepare = [&](float* head, const VectorValues& norm) {
        const bool norms = config_->query_key_norm == QueryKeyNorm::head; // QueryKeyNorm::row has been applied before
        if (norms) kernels.rms_norm(head, norm.weight.data(), dim, config_->norm_epsilon, head);
        rotate(kernels, task.layer, position, head);
    };
    const Group& group = groups_[index(kv_head)];
    for (int q = group.first_query; q < group.first_query + group.n_queries; ++q)
        prepare(base + q * dim, task.weights->vector(Role::query_norm));
    const int n_kv_heads = static_cast<int>(groups_.size());
    float* key = base + (n_query_heads_ + kv_head) * dim;
    const float* value = base + (n_query_heads_ + n_kv_heads + kv_head) * dim;
    prepare(key, task.weights->vector(Role::key_norm));
    put(task, segment, row, kv_head, key, value);
}

void Attention::put(const Task& task, const Segment& segment, int row, int kv_head, const float* key,
                    const float* value) {
    const int at = segment.cached + row - segment.begin, position = task.layout->pass.rows[index(row)].position;
    cache_->put({task.cache_layer, segment.slot, kv_head, at}, key, value);
    if (chunks_ && task.layout->pass.mask == Mask::causal) // siblings in a tree share a position
        chunks_->write({task.cache_layer, segment.slot, kv_head, position}, key, value);
}

void Attention::rotate(const kernels::Kernels& kernels, int layer, int position, float* head) const {
    const LayerRope which = config_->layer_rope(layer);
    if (!rotary_ || which == LayerRope::none) return;
    const RotaryTable& table = which == LayerRope::local ? *local_rotary_ : *rotary_;
    const auto turn = config_->rope.interleaved ? kernels.rotate_pairs : kernels.rotate_half;
    turn(head, table.cosines(position), table.sines(position), config_->rope.dims / 2);
}

void Attention::append_latent(const PassContext& context, const Task& task, Activations latent) {
    const PassLayout& layout = *task.layout;
    const LatentConfig& config = config_->latent;
    const dist::Slice my_rows = dist::even_slice(layout.rows(), context.thread, n_threads_);
    for (const Segment& segment : layout.segments) {
        for (int r = segment.begin; r < segment.end; ++r) {
            if (!my_rows.contains(r)) continue;
            float* vector = latent.row(r);
            context.kernels->rms_norm(vector, task.weights->vector(Role::key_value_down_norm).weight.data(),
                                      config.rank, config.kNormEpsilon, vector);
            rotate(*context.kernels, task.layer, layout.pass.rows[index(r)].position, vector + config.rank);
            put(task, segment, r, 0, vector, vector);
        }
    }
}

// Shares (key head, chunk of queries) pairs among the threads.
void Attention::attend(const PassContext& context, const Task& task, const Bundle& bundle) {
    const int n_kv_heads = static_cast<int>(groups_.size()), rows = bundle.end - bundle.begin;
    const int share = (rows * n_query_heads_ + n_threads_ - 1) / n_threads_;
    const int chunk = own_heads() ? kernels::kMaxQueries : std::clamp(share, 1, kernels::kMaxQueries);
    const auto chunks_of = [&](int h) { return (rows * groups_[index(h)].n_queries + chunk - 1) / chunk; };
    int n_chunks = 0;
    for (int h = 0; h < n_kv_heads; ++h)
        n_chunks += chunks_of(h);
    const dist::Slice my_heads = dist::even_slice(n_kv_heads, context.thread, n_threads_);
    const dist::Slice my_chunks = dist::even_slice(n_chunks, context.thread, n_threads_);
    for (int h = 0, counted = 0; h < n_kv_heads; ++h) {
        const int queries = rows * groups_[index(h)].n_queries;
        for (int first = 0; first < queries; first += chunk, ++counted)
            if (own_heads() ? my_heads.contains(h) : my_chunks.contains(counted))
                attend_some(context, task, bundle, h, first, std::min(chunk, queries - first));
    }
}

void Attention::attend_some(const PassContext& context, const Task& task, const Bundle& bundle, int kv_head, int first,
                            int count) {
    const PassLayout& layout = *task.layout;
    const Group& group = groups_[index(kv_head)];
    kernels::AttentionArgs args;
    args.n_queries = count;
    args.head_dim = config_->key_dim();
    args.value_dim = config_->value_dim();
    args.scale = config_->attention_scale;
    args.soft_cap = config_->attention_soft_cap;
    args.scratch_stride = index(cache_->shape().capacity);
    args.scratch = scores_.as<float>() + index(context.thread) * kernels::kMaxQueries * args.scratch_stride;
    args.kv_type = cache_->shape().type;
    if (!texts_) {
        args.n_prefix = bundle.prefix.length;
        args.prefix = cache_->head(task.cache_layer, bundle.prefix.slot, kv_head);
    }
    for (int i = 0; i < count; ++i) {
        const int row = layout.bundled[index(bundle.begin + (first + i) / group.n_queries)];
        const int slot = memory_slot(layout.pass.rows[index(row)].slot);
        args.kv[i] = cache_->head(task.cache_layer, slot, kv_head);
        args.apart = args.apart || args.kv[i].keys != args.kv[0].keys;
        set_query(args, i, context.thread, task, row, group.first_query + (first + i) % group.n_queries);
    }
    context.kernels->attention(args);
}

void Attention::set_query(kernels::AttentionArgs& args, int i, int thread, const Task& task, int row, int query_head) {
    const PassLayout& layout = *task.layout;
    const Pass& pass = layout.pass;
    const Segment& segment = layout.segments[index(layout.segment_of[index(row)])];
    const int window = config_->window(task.layer);
    args.q[i] = task.qkv.row(row) + query_head * config_->key_dim();
    args.out[i] = task.attended.row(row) + query_head * config_->value_dim();
    if (config_->has_sinks) args.sink[i] = &task.weights->vector(Role::sinks).weight[index(query_head)];
    if (reads_all_) {
        args.n_keys[i] = cache_->length(memory_slot(pass.rows[index(row)].slot));
        if (!relative_.empty()) args.bias[i] = row_biases(i, thread, task, row, query_head, args.n_keys[i], 0);
        return;
    }
    args.n_keys[i] = segment.cached + layout.seen_end(row) - segment.begin;
    const bool is_tree = pass.mask == Mask::by_parent;
    if (window > 0) args.first_key[i] = std::max(0, (is_tree ? layout.place_of(row) + 1 : args.n_keys[i]) - window);
    const bool ends_in_tree = is_tree && args.first_key[i] > segment.tree_begin; // the window begins inside the tree
    if (is_tree) {
        args.first_key[i] = std::min(args.first_key[i], segment.tree_begin);
        args.mask[i] = layout.ancestors_of(row);
        args.mask_begin[i] = segment.tree_begin;
    }
    if (!relative_.empty() || ends_in_tree || (is_tree && !slopes_.empty()))
        args.bias[i] = row_biases(i, thread, task, row, query_head, args.n_keys[i], window);
    else if (!slopes_.empty())
        args.bias[i] = biases_.as<float>() + index(query_head) * args.scratch_stride;
}

const float* Attention::row_biases(int i, int thread, const Task& task, int row, int query_head, int n_keys,
                                   int window) {
    const PassLayout& layout = *task.layout;
    const std::size_t stride = index(cache_->shape().capacity);
    const int reach = config_->relative.max_distance, position = layout.place_of(row);
    const float* by_distance =
        relative_.empty() ? nullptr : relative_.data() + index(query_head) * index(2 * reach + 1) + reach;
    const float* by_position = slopes_.empty() ? nullptr : biases_.as<float>() + index(query_head) * stride;
    float* to = row_biases_.as<float>() + (index(thread) * kernels::kMaxQueries + index(i)) * stride;
    const bool is_tree = !reads_all_ && layout.pass.mask == Mask::by_parent;
    const int tree_begin = layout.segments[index(layout.segment_of[index(row)])].tree_begin;
    const std::uint64_t* ancestors = is_tree ? layout.ancestors_of(row) : nullptr;
    int key_position = 0;
    for (int j = 0; j < n_keys; ++j) {
        to[j] = by_distance   ? by_distance[std::clamp(position - key_position, -reach, reach)]
                : by_position ? by_position[key_position]
                              : 0;
        if (window > 0 && key_position <= position - window) to[j] = -INFINITY;
        const int bit = j - tree_begin; // keys outside the row's branch do not count
        const bool is_seen = !is_tree || bit < 0 || (ancestors[bit / 64] >> (bit % 64) & 1) != 0;
        key_position += is_seen ? 1 : 0;
    }
    return to;
}

} // namespace entrodraft::model
