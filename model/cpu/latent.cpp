#include "model/cpu/latent.h"

#include <algorithm>

namespace entrodraft::model {
namespace {

dist::Slice own_rows(const PassContext& context, Activations rows) {
    return dist::even_slice(rows.n_rows, context.thread, context.team->size());
}

} // namespace

Activations latent_queries(CpuWorkspace& w, const PassContext& context, const HeldWeights& layer, Activations vectors) {
    context.barrier();
    const LatentConfig& latent = w.config.latent;
    if (latent.query_rank == 0) return vectors;
    const dist::Slice mine = own_rows(context, vectors);
    for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r)
        context.kernels->rms_norm(vectors.row(r), layer.vector(Role::query_down_norm).weight.data(), latent.query_rank,
                                  latent.kNormEpsilon, vectors.row(r));
    context.barrier();
    const Activations to = {w.queries.as<float>(), layer[Role::query_up].y_stride(), vectors.n_rows};
    layer[Role::query_up].apply(context, vectors, to);
    return to;
}

Activations key_value_vectors(const CpuWorkspace& w, Activations vectors) {
    const int rank = w.config.latent.query_rank;
    const int in_front = rank > 0 ? rank : w.shard.n_query_heads() * w.config.head_dim;
    return {vectors.data + in_front, vectors.stride, vectors.n_rows};
}

Activations absorb(CpuWorkspace& w, const PassContext& context, const PassLayout& layout, int layer,
                   Activations queries) {
    const LatentConfig& latent = w.config.latent;
    const int n_heads = w.shard.n_query_heads(), dim = w.config.head_dim, key_dim = w.config.key_dim();
    const Activations to = {w.latent_queries.as<float>(), index(n_heads * key_dim), queries.n_rows};
    context.barrier();
    for (int h = 0; h < n_heads; ++h)
        w.weights.layers[index(layer)].all(Role::absorb)[index(h)].apply(
            context, {queries.data + h * dim, queries.stride, queries.n_rows}, {to.data + h * key_dim, to.stride, 0});
    const dist::Slice mine = own_rows(context, queries);
    for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
        for (int h = 0; h < n_heads; ++h) {
            float* rotated = to.row(r) + h * key_dim + latent.rank;
            std::copy_n(queries.row(r) + h * dim + latent.plain_dim, latent.rotated_dim, rotated);
            w.attention.rotate(*context.kernels, layer, layout.pass.rows[index(r)].position, rotated);
        }
    }
    context.barrier();
    return to;
}

Activations expand(CpuWorkspace& w, const PassContext& context, int layer, Activations vectors) {
    const int n_heads = w.shard.n_query_heads(), rank = w.config.latent.rank, dim = w.config.latent.value_dim;
    const Activations to = {w.attended.as<float>(), index(n_heads * dim), vectors.n_rows};
    context.barrier();
    for (int h = 0; h < n_heads; ++h)
        w.weights.layers[index(layer)].all(Role::expand)[index(h)].apply(
            context, {vectors.data + h * rank, vectors.stride, vectors.n_rows}, {to.data + h * dim, to.stride, 0});
    return to;
}

} // namespace entrodraft::model
