// The operations of model/pass/transformer.h, for one thread of the team. An operation that reads results of other
// threads begins with a barrier. An operation that changes the residual stream ends with one. Called by decoder and
// encoder.
#pragma once

#include "model/cpu/delta_net.h"
#include "model/cpu/experts.h"
#include "model/cpu/latent.h"
#include "model/cpu/parallel_linear.h"
#include "model/cpu/workspace.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace entrodraft::model {

class CpuOps {
  public:
    using Operand = Activations;
    struct Product {
        const ShardedLinear& matrix;
        Operand from;
    };

    CpuOps(CpuWorkspace& workspace, const PassContext& context)
        : w_(workspace), config_(workspace.config), kernels_(*context.kernels), context_(context),
          layout_(&workspace.layout) {
        const std::size_t thread = index(context.thread), width = index(config_.hidden_size);
        context_.scratch = w_.scratch.as<float>() + thread * w_.scratch_floats;
        normed_ = {w_.normed.as<float>() + thread * kMaxRows * width, width, n_rows()};
    }

    const ModelWeights& weights() const { return w_.weights; }
    Operand read_residual() const { return text_rows_of(w_.x, padded(config_.hidden_size)); }
    Operand qkv() const { return text_rows_of(w_.qkv, w_.qkv_stride); }
    Operand embedded() const { return rows_of(w_.embedded, padded(config_.embedding_size)); }

    // ---- the residual stream ----

    void embed() {
        if (config_.fusion.kind == Fusion::features) return; // such a head has no embedding
        const bool projects = config_.embedding_size != config_.hidden_size;
        const std::vector<float>& table = weight(Role::positions);
        const Operand x = read_residual(), tokens = projects ? embedded() : x;
        w_.embedding.look_up(context_, layout_->tokens, tokens);
        if (!projects && table.empty() && config_.embedding_scale == 1) return;
        if (projects) column_linear(w_.weights.outer[Role::project_in], tokens, x);
        const dist::Slice mine = dist::even_slice(config_.hidden_size, context_.thread, n_threads(), kernels::kLanes);
        for (int r = 0; r < n_rows(); ++r) {
            const int place = layout_->pass.rows[index(r)].position + config_.position_offset;
            const float* position = table.empty() ? nullptr : &table[index(place) * index(config_.hidden_size)];
            for (std::int64_t i = mine.begin; i < mine.end; ++i)
                x.row(r)[i] = x.row(r)[i] * config_.embedding_scale + (position ? position[i] : 0.0f);
        }
        context_.barrier();
    }

    void add(std::initializer_list<Product> products) {
        const Operand x = read_residual();
        context_.barrier();
        bool onto = context_.carries_residual(); // the other ranks bring only their parts
        for (const auto& [matrix, from] : products) {
            matrix.apply(context_, from, x, onto);
            onto = true;
        }
        context_.all_reduce(x.data, index(x.n_rows) * x.stride);
    }

    void add_normed(Product product, const VectorValues& norm) {
        const Operand x = read_residual(), delta = rows_of(w_.delta, x.stride);
        context_.barrier();
        product.matrix.apply(context_, product.from, delta);
        context_.all_reduce(delta.data, index(delta.n_rows) * delta.stride);
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            apply_norm(norm, delta.row(r), normed_.data);
            for (std::size_t i = 0; i < normed_.stride; ++i)
                x.row(r)[i] += normed_.data[i];
        }
        context_.barrier();
    }

    void keep_hidden(int layers_done) {
        if (context_.thread != 0) return;
        const Pass& pass = layout_->pass;
        float* to = w_.hidden.data();
        for (const int layer : pass.hidden_layers)
            for (int r = 0; r < n_rows(); ++r, to += config_.hidden_size)
                if (layer == layers_done) std::copy_n(read_residual().row(r), config_.hidden_size, to);
    }

    // ---- a draft head's fusion ----

    bool has_features() const { return !layout_->pass.features.empty(); }

    Operand features() {
        const Pass& pass = layout_->pass;
        const Operand to = rows_of(w_.features, w_.features_stride), wide = joined();
        const bool projects = config_.fusion.projects_features && !pass.features_are_own;
        const std::size_t width = pass.features.size() / index(n_rows());
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            const float* from = &pass.features[index(r) * width];
            float* normed = projects ? wide.row(r) : to.row(r);
            std::copy_n(from, width, normed);
            if (!pass.features_are_own) norm_features(from, normed);
        }
        context_.barrier();
        if (!projects) return to;
        column_linear(w_.weights.outer[Role::feature_projection], wide, to);
        context_.barrier();
        return to;
    }

    Operand joined() const { return rows_of(w_.wide, joined_width(config_)); }

    Operand join(Operand features) {
        const Operand to = joined(), embedded = read_residual();
        const HeldWeights& outer = w_.weights.outer;
        const std::size_t hidden = index(config_.hidden_size);
        const bool is_concat = config_.fusion.kind == Fusion::concat; // with features as they are
        const std::size_t width = is_concat ? index(config_.fusion.width()) : hidden;
        const bool features_first = is_concat || config_.fusion.features_first;
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            float* of_features = to.row(r) + (features_first ? 0 : hidden);
            apply_norm(outer.vector(Role::fused_embedding_norm), embedded.row(r),
                       to.row(r) + (features_first ? width : 0));
            if (is_concat)
                std::copy_n(features.row(r), width, of_features);
            else
                apply_norm(outer.vector(Role::state_norm), features.row(r), of_features);
        }
        context_.barrier();
        return to;
    }

    void fuse(Operand joined) {
        column_linear(w_.weights.outer[Role::fusion], joined, read_residual());
        context_.barrier();
    }

    void fuse_activated(Operand joined) {
        const Operand x = read_residual(), inner = rows_of(w_.features, w_.features_stride);
        column_linear(w_.weights.outer[Role::skip], joined, x);
        column_linear(w_.weights.outer[Role::fusion], joined, inner);
        add_activated(x, inner);
    }

    void add_features(Operand features) {
        const Operand x = read_residual();
        const VectorValues& norm = w_.weights.outer.vector(Role::sum_norm);
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            for (int i = 0; i < config_.hidden_size; ++i)
                x.row(r)[i] += features.row(r)[i];
            activate_normed(norm, x.row(r), nullptr);
        }
        context_.barrier();
    }

    void lstm_cell(Operand gates) {
        const int hidden = config_.hidden_size;
        const Operand x = read_residual(), wide = joined();
        const FusionConfig& fusion = config_.fusion;
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            float *forget = gates.row(r), *input = forget + hidden, *candidate = forget + index(3) * index(hidden);
            for (int i = 0; i < 4 * hidden; ++i)
                forget[i] += x.row(r)[i % hidden];
            const float* cell = fusion.cell_size > 0 ? wide.row(r) + fusion.feature_numbers() : nullptr;
            apply_sigmoid(forget, 3 * hidden); // forget, input, output
            activate_normed(w_.weights.outer.vector(Role::cell_norm), candidate, input);
            for (int i = 0; i < hidden; ++i)
                x.row(r)[i] = (cell ? cell[i] * forget[i] : 0.0f) + candidate[i];
        }
        context_.barrier();
    }

    void lstm_output(Operand gates) {
        context_.barrier(); // after keep_hidden()
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r)
            activate_normed(w_.weights.outer.vector(Role::sum_norm), read_residual().row(r),
                            gates.row(r) + 2 * config_.hidden_size);
        context_.barrier();
    }

    void run_cell(const ShardedLinear& cell, Operand from) {
        const int hidden = config_.hidden_size;
        const Operand x = read_residual(), gates = rows_of(w_.features, w_.features_stride);
        column_linear(cell, from, gates);
        context_.barrier();
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            float *input = gates.row(r), *candidate = input + hidden, *output = candidate + hidden;
            apply_sigmoid(input, hidden);
            apply_sigmoid(output, hidden);
            for (int i = 0; i < hidden; ++i)
                x.row(r)[i] = output[i] * std::tanh(input[i] * std::tanh(candidate[i]));
        }
        context_.barrier();
    }

    void replace_residual(Operand features) {
        const dist::Slice mine = own_rows();
        static const VectorValues none;
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r)
            apply_norm(config_.fusion.normed_residual ? w_.weights.outer.vector(Role::state_norm) : none,
                       features.row(r), read_residual().row(r));
        context_.barrier();
    }

    void add_activated(const ShardedLinear& block) {
        const Operand x = read_residual(), inner = rows_of(w_.features, w_.features_stride);
        column_linear(block, x, inner);
        add_activated(x, inner);
    }

    void add_feed_forward(const ShardedLinear& in, const ShardedLinear& out) {
        const Operand x = read_residual(), inner = rows_of(w_.features, w_.features_stride);
        column_linear(in, x, inner);
        context_.barrier();
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r)
            kernels_.activate(config_.activation, inner.row(r), nullptr, config_.fusion.residual_size);
        context_.barrier();
        out.apply(context_, inner, x, true);
        context_.barrier();
    }

    void add_activated(Operand x, Operand inner) {
        context_.barrier();
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            kernels_.activate(config_.activation, inner.row(r), nullptr, config_.hidden_size);
            for (int i = 0; i < config_.hidden_size; ++i)
                x.row(r)[i] += inner.row(r)[i];
        }
        context_.barrier();
    }

    // ---- norms ----

    // Every thread norms all rows into its own memory, which is cheaper than a barrier.
    Operand norm(const VectorValues& norm) {
        for (int r = 0; r < n_rows(); ++r)
            apply_norm(norm, read_residual().row(r), normed_.row(r));
        return normed_;
    }

    void norm_residual(const VectorValues& norm) {
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r)
            apply_norm(norm, read_residual().row(r), read_residual().row(r));
        context_.barrier();
    }

    Operand final_norm() {
        Operand to = normed_;
        to.n_rows = 0;
        for (const int wanted : layout_->pass.logit_rows) {
            const float* from = read_residual().row(wanted);
            apply_norm(w_.weights.outer.vector(Role::final_norm), from, to.row(to.n_rows));
            ++to.n_rows;
        }
        keep_normed(to);
        return to;
    }

    // ---- the two halves of a layer: each thread makes its own outputs ----

    Operand column_linear(const ShardedLinear& matrix, Operand from, Operand to) {
        matrix.apply(context_, from, to);
        return {to.data, to.stride, from.n_rows};
    }

    void rotate_and_append(int layer, Operand qkv) {
        context_.barrier();
        w_.attention.append(context_, attention_of(layer, qkv));
        if (config_.fusion.kind == Fusion::context && has_features()) context_.barrier(); // the next layer's keys come
    }

    Operand attend(int layer, Operand qkv) {
        const Attention::Task task = attention_of(layer, qkv);
        w_.attention.attend(context_, task);
        return task.attended;
    }

    Operand attend_source(int layer, Operand query) {
        context_.barrier();
        const Attention::Task task = attention_of(layer, query);
        w_.cross_attention->attend(context_, task);
        return task.attended;
    }

    Operand feed_forward(const HeldWeights& layer, Operand from) {
        const auto product = [&](Role role, Buffer& to) {
            return column_linear(layer[role], from, rows_of(to, layer[role].y_stride()));
        };
        const Operand gate = config_.gated_mlp ? product(Role::gate, w_.gate) : Operand{};
        const Operand up = product(Role::up, w_.up), inner = config_.gated_mlp ? gate : up;
        const dist::Slice mine = layer[Role::up].matrix().outputs_of(context_.thread);
        for (int r = 0; r < n_rows(); ++r)
            kernels_.activate(config_.activation, inner.row(r) + mine.begin,
                              config_.gated_mlp ? up.row(r) + mine.begin : nullptr, static_cast<int>(mine.size()));
        return inner;
    }

    // Each rank counts its own heads. If several ranks have a KV head, the rank with its first query head counts it.
    void norm_queries_and_keys(const HeldWeights& layer, Operand qkv) {
        context_.barrier();
        const dist::HeadShard& heads = w_.shard.heads;
        const int dim = config_.head_dim, n_queries = w_.shard.n_query_heads(), n_keys = w_.shard.n_kv_heads();
        const int group = config_.n_heads / config_.n_kv_heads;
        const Operand squares = rows_of(w_.squares, 2);
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            squares.row(r)[0] = sum_of_squares(qkv.row(r), n_queries * dim);
            squares.row(r)[1] = 0;
            for (int h = 0; h < n_keys; ++h)
                if (heads.query_heads.contains((heads.kv_heads.begin + h) * group))
                    squares.row(r)[1] += sum_of_squares(qkv.row(r) + (n_queries + h) * dim, dim);
        }
        context_.all_reduce(squares.data, index(n_rows()) * 2);
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            float* queries = qkv.row(r);
            scale_normed(queries, squares.row(r)[0] / static_cast<float>(config_.n_heads * dim),
                         layer.vector(Role::query_norm));
            scale_normed(queries + n_queries * dim, squares.row(r)[1] / static_cast<float>(config_.n_kv_heads * dim),
                         layer.vector(Role::key_norm));
        }
    }

    // ---- latent attention ----

    Operand latent_queries(const HeldWeights& layer, Operand vectors) {
        return model::latent_queries(w_, context_, layer, vectors);
    }

    void append_latent(int layer, Operand vectors) {
        w_.attention.append_latent(context_, attention_of(layer, vectors), key_value_vectors(w_, vectors));
    }

    Operand absorb(int layer, Operand queries) { return model::absorb(w_, context_, *layout_, layer, queries); }
    Operand expand(int layer, Operand vectors) { return model::expand(w_, context_, layer, vectors); }

    // ---- linear attention ----

    Operand delta_net(int layer, Operand projected) { return model::delta_net(w_, context_, layer, projected); }

    Operand gate_attended(Operand attended, Operand qkv) {
        context_.barrier();
        const int n = w_.shard.n_query_heads() * config_.head_dim;
        const int before = n + 2 * w_.shard.n_kv_heads() * config_.head_dim;
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            float* gate = qkv.row(r) + before;
            apply_sigmoid(gate, n);
            for (int i = 0; i < n; ++i)
                attended.row(r)[i] *= gate[i];
        }
        return attended;
    }

    // ---- experts ----

    void choose_experts(const HeldWeights& layer, Operand from) { model::choose_experts(w_, context_, layer, from); }

    void add_experts(const HeldWeights& layer, Operand from) {
        const Operand x = read_residual();
        const bool has_shared = config_.experts.shared_size > 0;
        Operand shared;
        if (has_shared) shared = scale_shared(layer, feed_forward(layer, from));
        multiply_into_experts(w_, context_, layer, from);
        context_.barrier();
        const bool carries = context_.carries_residual(); // the other ranks bring only their parts
        const dist::Slice mine = layer[Role::expert_down].matrix().outputs_of(context_.thread);
        if (has_shared) layer[Role::down].apply(context_, shared, x, carries);
        for (int r = 0; r < n_rows() && !has_shared && !carries; ++r)
            std::fill(x.row(r) + mine.begin, x.row(r) + mine.end, 0.0f);
        add_from_experts(w_, context_, layer, x);
        context_.all_reduce(x.data, index(x.n_rows) * x.stride);
    }

    // ---- logits ----

    void head(Operand from) {
        if (from.data != normed_.data) context_.barrier(); // all threads have projected
        const PackedMatrix& matrix = w_.weights.head();
        const Operand logits = {w_.logits.as<float>(), index(matrix.n_padded()), from.n_rows};
        const LogitSummary summary = layout_->pass.needs.summary;
        // The multiplication keeps up the sums for the entropy, if the logits stay as they are.
        const bool has_sums =
            summary == LogitSummary::entropy && weight(Role::head_bias).empty() && config_.logit_soft_cap == 0;
        if (has_sums) {
            matrix.multiply_logits(kernels_, context_.thread, from.data, from.stride, from.n_rows, logits.data,
                                   logits.stride, context_.scratch, own(w_.lane_stats), counted_outputs());
        } else {
            matrix.multiply(kernels_, context_.thread, from.data, from.stride, from.n_rows, logits.data, logits.stride,
                            false, context_.scratch);
            finish_logits(logits);
        }
        if (summary != LogitSummary::none) summarize(logits, has_sums);
    }

  protected:
    // From now on the rows are a chunk of a text. Its first row is row `first_row` of x and qkv.
    void select(const PassLayout& chunk, int first_row) {
        layout_ = &chunk;
        first_row_ = first_row;
        normed_.n_rows = n_rows();
    }
    int n_rows() const { return layout_->rows(); }
    int n_threads() const { return context_.team->size(); }
    dist::Slice own_rows() const { return dist::even_slice(n_rows(), context_.thread, n_threads()); }
    Operand rows_of(Buffer& buffer, std::size_t stride) const { return {buffer.as<float>(), stride, n_rows()}; }
    template <typename T> T* own(std::vector<T>& parts) const { return &parts[index(context_.thread) * kMaxRows]; }

    Operand text_rows_of(Buffer& buffer, std::size_t stride) const {
        return {buffer.as<float>() + index(first_row_) * stride, stride, n_rows()};
    }
    CpuWorkspace& workspace() const { return w_; }
    int first_row() const { return first_row_; }
    const PassContext& context() const { return context_; }

  private:
    // Keeps the state after the final norm, of rows with logits: hidden states of layer n_layers + 1.
    void keep_normed(Operand normed) {
        if (context_.thread != 0) return;
        const Pass& pass = layout_->pass;
        float* to = w_.hidden.data();
        for (const int layer : pass.hidden_layers) {
            for (int r = 0; r < normed.n_rows && layer == config_.n_layers + 1; ++r)
                std::copy_n(normed.row(r), config_.hidden_size,
                            to + index(pass.logit_rows[index(r)]) * index(config_.hidden_size));
            to += index(n_rows()) * index(config_.hidden_size);
        }
    }

    // Norms the target's features of a row.
    void norm_features(const float* from, float* to) const {
        const FusionConfig& fusion = config_.fusion;
        const int size = fusion.feature_norm_size;
        for (const VectorValues& norm : w_.weights.outer.vectors(Role::feature_norm)) {
            if (fusion.feature_norm == Norm::rms)
                kernels_.rms_norm(from, norm.weight.data(), size, fusion.feature_norm_epsilon, to);
            else
                kernels_.layer_norm(from, norm.weight.data(), norm.bias.data(), size, fusion.feature_norm_epsilon, to);
            from += size;
            to += size;
        }
        if (fusion.features_scale == 0) return;
        to -= size * fusion.n_feature_norms;
        double squares = 0;
        for (int i = 0; i < fusion.width(); ++i)
            squares += static_cast<double>(to[i]) * to[i];
        const auto scale =
            static_cast<float>(fusion.features_scale / std::sqrt(squares / fusion.width() + fusion.kScaleEpsilon));
        for (int i = 0; i < fusion.width(); ++i)
            to[i] *= scale;
    }

    // Copies x if the norm has no weights.
    void apply_norm(const VectorValues& norm, const float* from, float* to) const {
        if (norm.weight.empty())
            std::copy_n(from, config_.hidden_size, to);
        else if (config_.norm == Norm::rms)
            kernels_.rms_norm(from, norm.weight.data(), config_.hidden_size, config_.norm_epsilon, to);
        else
            kernels_.layer_norm(from, norm.weight.data(), norm.bias.data(), config_.hidden_size, config_.norm_epsilon,
                                to);
    }

    // x = activation(norm x + bias), times a factor if there is one.
    void activate_normed(const VectorValues& norm, float* x, const float* factor) const {
        apply_norm(norm, x, x);
        for (int i = 0; i < config_.hidden_size; ++i)
            x[i] += norm.bias[index(i)];
        kernels_.activate(config_.activation, x, factor, config_.hidden_size);
    }

    // Scales this thread's part of the shared expert's inner activations.
    Operand scale_shared(const HeldWeights& layer, Operand inner) const {
        const dist::Slice mine = layer[Role::up].matrix().outputs_of(context_.thread);
        for (int r = 0; r < n_rows() && config_.experts.gated_shared; ++r) {
            const float scale = shared_scale(w_, r);
            for (std::int64_t i = mine.begin; i < mine.end; ++i)
                inner.row(r)[i] *= scale;
        }
        return inner;
    }

    static float sum_of_squares(const float* x, int n) {
        float lanes[kernels::kLanes] = {}, sum = 0;
        for (int i = 0; i < n; ++i)
            lanes[i % kernels::kLanes] += x[i] * x[i];
        for (const float lane : lanes)
            sum += lane;
        return sum;
    }

    // Applies RMSNorm to x, whose mean of squares is known.
    void scale_normed(float* x, float mean, const VectorValues& norm) const {
        const float scale = 1.0f / std::sqrt(mean + config_.norm_epsilon);
        for (std::size_t i = 0; i < norm.weight.size(); ++i)
            x[i] *= scale * norm.weight[i];
    }

    static void apply_sigmoid(float* x, int n) {
        for (int i = 0; i < n; ++i)
            x[i] = 1.0f / (1.0f + std::exp(-x[i]));
    }

    Attention::Task attention_of(int layer, Operand qkv) const {
        const int of_cache = config_.is_encoder ? 0 : config_.cache_layer(layer); // its layers share one
        Buffer& to = config_.is_latent() ? w_.latent_attended : w_.attended;
        return {layout_, &w_.weights.layers[index(layer)],
                layer,   of_cache,
                qkv,     rows_of(to, index(w_.shard.n_query_heads() * config_.value_dim()))};
    }

    // Applies the family's bias and cap to this thread's logits.
    void finish_logits(Operand logits) const {
        const std::vector<float>& bias = weight(Role::head_bias);
        const dist::Slice mine = w_.weights.head().outputs_of(context_.thread);
        for (int r = 0; r < logits.n_rows; ++r) {
            for (std::int64_t i = mine.begin; i < mine.end && !bias.empty(); ++i)
                logits.row(r)[i] += bias[i];
            if (config_.logit_soft_cap > 0)
                kernels_.soft_cap(logits.row(r) + mine.begin, config_.logit_soft_cap, static_cast<int>(mine.size()));
        }
    }

    // Number of tokens in this rank's slice of the vocabulary that count in summaries.
    int counted_outputs() const {
        const int known = layout_->pass.summary_vocab > 0 ? layout_->pass.summary_vocab : config_.n_outputs();
        return static_cast<int>(std::clamp<std::int64_t>(known - w_.shard.outputs.begin, 0, w_.shard.outputs.size()));
    }

    // Summarizes this thread's outputs of each row.
    void summarize(Operand logits, bool has_sums) const {
        const dist::Slice mine = w_.weights.head().outputs_of(context_.thread);
        const int begin = static_cast<int>(mine.begin), first_token = static_cast<int>(w_.shard.outputs.begin) + begin;
        const int n = std::clamp(counted_outputs() - begin, 0, static_cast<int>(mine.size()));
        for (int r = 0; r < logits.n_rows; ++r) {
            const float* row = logits.row(r) + begin;
            LogitStats& part = own(w_.summary_parts)[r];
            part = {};
            if (n == 0) continue;
            if (layout_->pass.needs.summary == LogitSummary::max)
                part = kernels_.logit_max(row, n, first_token);
            else if (has_sums)
                part = kernels_.finish_stats(own(w_.lane_stats)[r], row, n, first_token);
            else
                part = kernels_.logit_stats(row, n, first_token);
        }
    }

    // Returns a vector around the layers; empty if the model has none.
    const std::vector<float>& weight(Role role) const { return w_.weights.outer.vector(role).weight; }

    CpuWorkspace& w_;
    const ModelConfig& config_;
    const kernels::Kernels& kernels_;
    PassContext context_;
    Operand normed_; // this thread's
    const PassLayout* layout_;
    int first_row_ = 0; // of x and qkv
};

} // namespace entrodraft::model
