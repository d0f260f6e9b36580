#include "model/cpu/experts.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::model {
namespace {

Activations router_products(CpuWorkspace& workspace, int n_rows) {
    const ExpertsConfig& experts = workspace.config.experts;
    return {workspace.router_products.as<float>(), padded(experts.n_experts + 1), n_rows};
}

// Returns an expert's part of the buffer, with a row for each of its rows.
Activations inner_rows(Buffer& buffer, const ShardedLinear& up, int first, int count) {
    const std::size_t stride = up.y_stride();
    return {buffer.as<float>() + index(first) * stride, stride, count};
}

// Clamps gate and up so that SiLU(gate) * up is what ExpertsConfig says: slope g, and (u + 1) / slope.
void clamp(const ExpertsConfig& experts, float* gate, float* up, int n) {
    const float limit = experts.swiglu_limit, slope = experts.swiglu_slope;
    for (int i = 0; i < n; ++i) {
        gate[i] = slope * std::min(gate[i], limit);
        up[i] = (std::clamp(up[i], -limit, limit) + 1) / slope;
    }
}

} // namespace

void choose_experts(CpuWorkspace& w, const PassContext& context, const HeldWeights& layer, Activations from) {
    const ExpertsConfig& experts = w.config.experts;
    const Activations products = router_products(w, from.n_rows);
    layer[Role::router].apply(context, from, products);
    context.barrier();
    const dist::Slice mine = dist::even_slice(from.n_rows, context.thread, context.team->size());
    const std::size_t n_chosen = index(experts.n_chosen);
    for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r)
        choose_experts(experts, {products.row(r), index(experts.n_experts)},
                       layer.vector(Role::router_correction).weight,
                       std::span(w.chosen).subspan(index(r) * n_chosen, n_chosen));
    context.barrier();
    w.expert_rows[index(context.thread)].set(experts, std::span(w.chosen).first(index(from.n_rows) * n_chosen));
}

void multiply_into_experts(CpuWorkspace& w, const PassContext& context, const HeldWeights& layer, Activations from) {
    const ExpertRows& rows = w.expert_rows[index(context.thread)];
    const std::size_t hidden = index(w.config.hidden_size);
    Activations gathered = {w.expert_from.as<float>() + index(context.thread) * kMaxRows * hidden, hidden, 0};
    for (int e = 0; e < w.config.experts.n_experts; ++e) {
        const int first = rows.begin[index(e)], count = rows.count(e);
        if (count == 0) continue;
        const ShardedLinear& expert_up = layer.all(Role::expert_up)[index(e)];
        gathered.n_rows = count;
        for (int i = 0; i < count; ++i)
            std::copy_n(from.row(rows.rows[index(first + i)]), hidden, gathered.row(i));
        const Activations gate = inner_rows(w.expert_gate, expert_up, first, count);
        const Activations up = inner_rows(w.expert_up, expert_up, first, count);
        layer.all(Role::expert_gate)[index(e)].apply(context, gathered, gate);
        expert_up.apply(context, gathered, up);
        const dist::Slice mine = expert_up.matrix().outputs_of(context.thread);
        for (int i = 0; i < count; ++i) {
            float *inner = gate.row(i) + mine.begin, *factor = up.row(i) + mine.begin;
            const int n = static_cast<int>(mine.size());
            if (w.config.experts.swiglu_limit > 0) clamp(w.config.experts, inner, factor, n);
            context.kernels->activate(w.config.activation, inner, factor, n);
        }
    }
}

void add_from_experts(CpuWorkspace& w, const PassContext& context, const HeldWeights& layer, Activations x) {
    const ExpertRows& rows = w.expert_rows[index(context.thread)];
    const dist::Slice mine = layer[Role::expert_down].matrix().outputs_of(context.thread);
    for (int e = 0; e < w.config.experts.n_experts; ++e) {
        const int first = rows.begin[index(e)], count = rows.count(e);
        if (count == 0) continue;
        const Activations inner = inner_rows(w.expert_gate, layer.all(Role::expert_up)[index(e)], first, count);
        const Activations outputs = {w.delta.as<float>(), x.stride, count};
        layer.all(Role::expert_down)[index(e)].apply(context, inner, outputs);
        for (int i = 0; i < count; ++i) {
            float* to = x.row(rows.rows[index(first + i)]);
            for (std::int64_t c = mine.begin; c < mine.end; ++c)
                to[c] += outputs.row(i)[c] * rows.weights[index(first + i)];
        }
    }
}

float shared_scale(CpuWorkspace& w, int row) {
    return 1.0f / (1.0f + std::exp(-router_products(w, row + 1).row(row)[w.config.experts.n_experts]));
}

} // namespace entrodraft::model
