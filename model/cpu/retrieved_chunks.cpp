#include "model/cpu/retrieved_chunks.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace entrodraft::model {

namespace {

std::shared_ptr<KvCache> cache_of_all(KvCache::Shape shape, int max_positions) {
    shape.capacity = max_positions;
    return std::make_shared<KvCache>(shape);
}

KvCache::Shape shape_of_means(KvCache::Shape shape) {
    shape.capacity = std::max(shape.capacity / RetrievalOptions::kChunk, 1);
    shape.value_dim = 1; // not used
    shape.type = WeightType::float32;
    return shape;
}

} // namespace

RetrievedChunks::RetrievedChunks(std::shared_ptr<KvCache> whole, KvCache& kept, const RetrievalOptions& options,
                                 int max_positions, int n_threads)
    : writes_(!whole), whole_(whole ? std::move(whole) : cache_of_all(kept.shape(), max_positions)), kept_(kept),
      options_(options), means_(shape_of_means(whole_->shape())), threads_(index(n_threads)) {
    for (Thread& thread : threads_)
        thread.scores = Buffer(kernels::kMaxQueries * index(means_.shape().capacity) * sizeof(float));
}

void RetrievedChunks::write(const KvCache::HeadPlace& place, const float* key, const float* value) {
    if (writes_) whole_->put(place, key, value);
}

void RetrievedChunks::retrieve(const kernels::Kernels& kernels, int thread, const Retrieval& of, int layer, int kv_head,
                               const Queries& queries) {
    add_means(of, layer, kv_head);
    kernels::AttentionArgs scoring;
    const int first = options_.first_chunk(), end = of.end / kSize;
    std::fill_n(scoring.first_key, kernels::kMaxQueries, first);
    std::fill_n(scoring.n_keys, kernels::kMaxQueries, end);
    std::fill_n(scoring.kv, kernels::kMaxQueries, means_.head(layer, of.slot, kv_head));
    vote(kernels, thread, scoring, queries);
    const std::vector<float>& votes = threads_[index(thread)].votes;
    std::vector<int>& best = threads_[index(thread)].best;
    best.resize(index(end - first));
    std::iota(best.begin(), best.end(), first);
    const auto is_better = [&](int a, int b) {
        return votes[index(a)] != votes[index(b)] ? votes[index(a)] > votes[index(b)] : a < b;
    };
    std::nth_element(best.begin(), best.begin() + options_.chunks - 1, best.end(), is_better);
    best.resize(index(options_.chunks));
    std::ranges::sort(best);
    KvCache::HeadPlace to = {layer, of.slot, kv_head, options_.sinks};
    for (const int chunk : best) {
        kept_.copy_in(to, *whole_, place_of_chunk(of.slot, layer, kv_head, chunk), kSize);
        to.position += kSize;
    }
}

// A slot's whole blocks may belong to another slot.
KvCache::HeadPlace RetrievedChunks::place_of_chunk(int slot, int layer, int kv_head, int chunk) const {
    const KvCache::Prefix prefix = whole_->prefix(slot);
    return {layer, chunk * kSize < prefix.length ? prefix.slot : slot, kv_head, chunk * kSize};
}

void RetrievedChunks::add_means(const Retrieval& of, int layer, int kv_head) {
    const std::size_t dim = index(whole_->shape().head_dim);
    std::vector<float> key(dim), mean(dim);
    for (int chunk = of.begin / kSize; chunk < of.end / kSize; ++chunk) {
        KvCache::HeadPlace from = place_of_chunk(of.slot, layer, kv_head, chunk);
        std::ranges::fill(mean, 0.0F);
        for (const int end = from.position + kSize; from.position < end; ++from.position) {
            whole_->read(from, key.data(), nullptr);
            std::ranges::transform(mean, key, mean.begin(), std::plus());
        }
        for (float& number : mean)
            number /= kSize;
        means_.put({layer, of.slot, kv_head, chunk}, mean.data(), mean.data());
    }
}

// Adds up each query's attention to the chunks, as if their mean keys were keys. All queries count alike.
void RetrievedChunks::vote(const kernels::Kernels& kernels, int thread, const kernels::AttentionArgs& scoring,
                           const Queries& queries) {
    Thread& own = threads_[index(thread)];
    const auto first = index(scoring.first_key[0]), end = index(scoring.n_keys[0]);
    own.votes.assign(end, 0);
    kernels::AttentionArgs args = scoring;
    args.head_dim = means_.shape().head_dim;
    args.scale = queries.scale;
    args.soft_cap = queries.soft_cap;
    args.scratch = own.scores.as<float>();
    args.scratch_stride = index(means_.shape().capacity);
    for (std::size_t begin = 0; begin < queries.rows.size(); begin += kernels::kMaxQueries) {
        const auto rows =
            queries.rows.subspan(begin, std::min<std::size_t>(kernels::kMaxQueries, queries.rows.size() - begin));
        args.n_queries = static_cast<int>(rows.size());
        std::ranges::copy(rows, args.q);
        kernels.attention(args); // without values: leaves weights that are not yet divided by their sum
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const float* weights = args.scratch + i * args.scratch_stride;
            const float sum = std::accumulate(weights + first, weights + end, 0.0F);
            for (std::size_t chunk = first; chunk < end; ++chunk)
                own.votes[chunk] += weights[chunk] / sum;
        }
    }
}

} // namespace entrodraft::model
