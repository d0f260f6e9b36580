#include "model/cpu/delta_net.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::model {
namespace {

// A key head of a layer, with the value heads that read its keys.
class KeyHead {
  public:
    KeyHead(CpuWorkspace& w, const PassContext& context, int layer, int head)
        : w_(w), kernels_(*context.kernels), config_(w.config), linear_(w.config.linear),
          weights_(w.weights.layers[index(layer)]), states_(w.texts.recurrent()), layer_(config_.cache_layer(layer)),
          head_(head), group_(linear_.group()), state_floats_(index(linear_.key_dim) * index(linear_.value_dim)),
          branches_(w.delta_states.as<float>() + index(context.thread) * w.delta_state_floats),
          convolved_(index(linear_.convolved_size())), read_(index(linear_.value_dim)) {}

    void run(const Segment& segment, const DeltaPlan& plan, Activations projected, Activations attended) {
        slot_ = segment.slot;
        plan_ = &plan;
        advance();
        for (int r = segment.begin; r < segment.end; ++r)
            keep_input(projected.row(r), segment.cached + r - segment.begin);
        for (const DeltaStep& step : plan.steps) {
            float* state = branch(step.to);
            if (step.from != step.to)
                std::copy_n(step.from < 0 ? front() : branch(step.from), index(group_) * state_floats_, state);
            apply(step.position, state, step.row < 0 ? nullptr : projected.row(step.row),
                  step.row < 0 ? nullptr : attended.row(step.row));
        }
    }

  private:
    float* base() const { return states_.base(layer_, slot_, head_ * group_); } // states of the group, in order
    float* front() const { return states_.front(layer_, slot_, head_ * group_); }
    float* branch(int number) const { return branches_ + index(number * group_) * state_floats_; }
    float* input(int position) const { return states_.input(layer_, slot_, head_, position); }

    // Advances base and front as the plan says.
    void advance() {
        const RecurrentStates::Advance& to = plan_->advance;
        const auto begin = [&](float* state, int position) {
            if (position == 0) std::fill_n(state, index(group_) * state_floats_, 0.0f);
        };
        begin(base(), to.base_from);
        for (int position = to.base_from; position < to.base_to; ++position)
            apply(position, base(), nullptr, nullptr);
        if (to.copies_base) std::copy_n(base(), index(group_) * state_floats_, front());
        begin(front(), to.front_from);
        for (int position = to.front_from; position < to.front_to; ++position)
            apply(position, front(), nullptr, nullptr);
    }

    // Keeps query, key, values, and for each value head its state's decay and its step towards the value.
    void keep_input(const float* projected, int position) {
        const int n_keys = static_cast<int>(w_.shard.linear_keys.size()), of_head = linear_.convolved_size();
        const int width = of_head + group_ * linear_.value_dim;
        const float* steps = projected + n_keys * width + head_ * 2 * group_;
        float* to = std::copy_n(projected + head_ * width, of_head, input(position));
        for (int j = 0; j < group_; ++j) {
            const std::size_t value_head = index(head_ * group_ + j);
            const float x = steps[group_ + j] + weights_.vector(Role::decay_bias).weight[value_head];
            const float softplus = x > 20 ? x : std::log1p(std::exp(x));
            to[j] = std::exp(weights_.vector(Role::decay_rates).weight[value_head] * softplus);
            to[group_ + j] = 1 / (1 + std::exp(-steps[j]));
        }
    }

    // Convolves the row at a position with the rows before it on its branch.
    void convolve(int position) {
        const float* rows[LinearAttentionConfig::kMaxConvolved];
        for (int tap = linear_.n_convolved - 1; tap >= 0; --tap) {
            rows[tap] = position < 0 ? nullptr : input(position);
            if (position >= 0) position = plan_->parent(position);
        }
        const int n = linear_.convolved_size();
        const std::size_t of_weights = index(head_) * index(linear_.n_convolved) * index(n);
        kernels_.convolve(rows, weights_.vector(Role::convolution).weight.data() + of_weights, linear_.n_convolved, n,
                          convolved_.data());
        kernels_.activate(config_.activation, convolved_.data(), nullptr, n);
        const auto scale = [&](float* x, const std::vector<float>& by) {
            kernels_.rms_norm(x, by.data(), linear_.key_dim,
                              linear_.kLengthEpsilon / static_cast<float>(linear_.key_dim), x);
        };
        scale(convolved_.data(), w_.query_scale);
        scale(convolved_.data() + linear_.key_dim, w_.key_scale);
    }

    // Applies a row to the states at `state`. If the row is in the pass, also writes its gated readings.
    void apply(int position, float* state, const float* projected, float* attended) {
        convolve(position);
        const int dim = linear_.value_dim;
        const float *query = convolved_.data(), *key = query + linear_.key_dim, *values = key + linear_.key_dim;
        const float* gates = input(position) + linear_.convolved_size();
        for (int j = 0; j < group_; ++j, state += state_floats_) {
            kernels_.delta_step(
                {state, query, key, values + j * dim, gates[j], gates[group_ + j], linear_.key_dim, dim, read_.data()});
            if (attended == nullptr) continue;
            kernels_.rms_norm(read_.data(), weights_.vector(Role::delta_norm).weight.data(), dim, config_.norm_epsilon,
                              read_.data());
            const int width = linear_.convolved_size() + group_ * dim;
            float* to = attended + (head_ * group_ + j) * dim;
            std::copy_n(projected + head_ * width + linear_.convolved_size() + j * dim, dim, to);
            kernels_.activate(Activation::silu, to, read_.data(), dim);
        }
    }

    CpuWorkspace& w_;
    const kernels::Kernels& kernels_;
    const ModelConfig& config_;
    const LinearAttentionConfig& linear_;
    const HeldWeights& weights_;
    RecurrentStates& states_;
    int layer_, head_, group_;
    std::size_t state_floats_;
    float* branches_;              // [DeltaPlan::n_states][group][key_dim][value_dim], this thread's
    std::vector<float> convolved_; // query, key, values of a row
    std::vector<float> read_;      // [value_dim]
    int slot_ = 0;
    const DeltaPlan* plan_ = nullptr;
};

} // namespace

Activations delta_net(CpuWorkspace& w, const PassContext& context, int layer, Activations projected) {
    context.barrier();
    const int n_keys = static_cast<int>(w.shard.linear_keys.size());
    const std::size_t width = index(n_keys * w.config.linear.group()) * index(w.config.linear.value_dim);
    const Activations attended = {w.attended.as<float>(), width, projected.n_rows};
    const dist::Slice mine = dist::even_slice(n_keys, context.thread, context.team->size());
    for (auto head = static_cast<int>(mine.begin); head < mine.end; ++head) {
        KeyHead key_head(w, context, layer, head);
        for (std::size_t i = 0; i < w.delta_plans.size(); ++i)
            key_head.run(w.layout.segments[i], w.delta_plans[i], projected, attended);
    }
    return attended;
}

} // namespace entrodraft::model
