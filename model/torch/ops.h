// The operations of model/pass/transformer.h on ATen, on any device that ATen supports. Called by torch/decoder and
// torch/encoder.
#pragma once

#include "model/torch/workspace.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace entrodraft::model::torch {

// The residual stream is float32; other activations have the weights' type.
class TorchOps {
  public:
    struct Operand { // [n_rows][width]
        at::Tensor rows;
        int n_rows = 0;
    };
    struct Product {
        const TensorMatrix& matrix;
        Operand from;
    };

    explicit TorchOps(TorchWorkspace& workspace)
        : w_(workspace), config_(workspace.config), pass_(workspace.layout.pass), places_(places_of_rows()),
          angles_(angles_of(workspace.angles)), local_angles_(angles_of(workspace.local_angles)) {}

    const TensorWeights& weights() const { return w_.weights; }
    Operand read_residual() const { return rounded(x_); }
    Operand qkv() const { return {}; } // each result is a new tensor
    Operand embedded() const { return {}; }

    // ---- the residual stream ----

    void embed() {
        if (config_.fusion.kind == Fusion::features) return; // such a head has no embedding
        const dist::Slice own = w_.shard.vocab;
        std::vector<std::int64_t> tokens;
        std::vector<float> is_own;
        for (const Row& row : pass_.rows) {
            is_own.push_back(own.contains(row.token) ? 1.0F : 0.0F);
            tokens.push_back(own.contains(row.token) ? row.token - own.begin : 0);
        }
        const at::Tensor& table = w_.embedding.weight;
        if (own.size() > 0)
            x_ = table.index_select(0, to_tensor(tokens, w_.device)).to(at::kFloat);
        else // there are more ranks than units of the vocabulary
            x_ = at::zeros({w_.layout.rows(), config_.embedding_size}, table.options().dtype(at::kFloat));
        if (w_.tp.size() > 1) x_ = summed(x_ * to_tensor(is_own, w_.device).unsqueeze(1));
        if (config_.embedding_size != config_.hidden_size)
            x_ = product({w_.weights.outer[Role::project_in], rounded(x_)});
        if (config_.embedding_scale != 1) x_ = x_ * config_.embedding_scale;
        const at::Tensor& positions = w_.weights.outer.vector(Role::positions).weight;
        if (positions.defined()) x_ = x_ + positions.index_select(0, places_);
    }

    void add(std::initializer_list<Product> products) {
        at::Tensor sum;
        for (const Product& one : products)
            sum = sum.defined() ? sum + product(one) : product(one);
        x_ = x_ + summed(sum);
    }

    void add_normed(const Product& one, const TensorNorm& norm) { x_ = x_ + apply(norm, summed(product(one))); }

    void keep_hidden(int layers_done) { keep_hidden(layers_done, x_); }

    // ---- a draft head's fusion ----

    bool has_features() const { return !pass_.features.empty(); }

    at::Tensor features() {
        const auto rows = std::ssize(pass_.rows), width = std::ssize(pass_.features) / rows;
        const at::Tensor states = at::from_blob(const_cast<float*>(pass_.features.data()), {rows, width}, at::kFloat)
                                      .to(w_.device, at::kFloat, false, true);
        if (pass_.features_are_own) return states;
        const FusionConfig& fusion = config_.fusion;
        if (fusion.cell_size > 0) cell_ = states.narrow(1, fusion.feature_numbers(), fusion.cell_size);
        const at::Tensor normed = normed_features(states.narrow(1, 0, fusion.feature_numbers()));
        if (!config_.fusion.projects_features) return normed;
        return product({w_.weights.outer[Role::feature_projection], rounded(normed)});
    }

    Operand joined() const { return joined_; }
    Operand join(const at::Tensor& features) {
        const FusionConfig& fusion = config_.fusion;
        std::vector<at::Tensor> parts = {apply(w_.weights.outer.vector(Role::fused_embedding_norm), x_),
                                         apply(w_.weights.outer.vector(Role::state_norm), features)};
        if (fusion.kind == Fusion::concat || fusion.features_first) std::swap(parts[0], parts[1]);
        joined_ = rounded(at::cat(parts, 1));
        return joined_;
    }

    void fuse(const Operand& joined) { x_ = product({w_.weights.outer[Role::fusion], joined}); }
    void fuse_activated(const Operand& joined) {
        x_ = product({w_.weights.outer[Role::skip], joined}) +
             activation(product({w_.weights.outer[Role::fusion], joined}));
    }
    void add_features(const at::Tensor& features) {
        x_ = activation(apply(w_.weights.outer.vector(Role::sum_norm), x_ + features));
    }
    void lstm_cell(const at::Tensor& gates) {
        const at::Tensor sums = gates.view({gates.size(0), 4, config_.hidden_size}) + x_.unsqueeze(1);
        const auto gate = [&](int number) { return at::sigmoid(sums.select(1, number)); }; // forget, input, output
        x_ = gate(1) * activation(apply(w_.weights.outer.vector(Role::cell_norm), sums.select(1, 3)));
        if (cell_.defined()) x_ = x_ + cell_ * gate(0);
        output_gate_ = gate(2);
    }
    void lstm_output(const at::Tensor&) {
        x_ = activation(apply(w_.weights.outer.vector(Role::sum_norm), x_)) * output_gate_;
    }
    void replace_residual(const at::Tensor& features) {
        x_ = config_.fusion.normed_residual ? apply(w_.weights.outer.vector(Role::state_norm), features) : features;
    }
    void run_cell(const TensorMatrix& cell, const Operand& from) {
        const std::vector<at::Tensor> gates = product({cell, from}).chunk(3, 1); // input, candidate, output
        x_ = at::sigmoid(gates[2]) * at::tanh(at::sigmoid(gates[0]) * at::tanh(gates[1]));
    }
    void add_feed_forward(const TensorMatrix& in, const TensorMatrix& out) {
        x_ = x_ + product({out, rounded(activation(product({in, read_residual()})))});
    }
    void add_activated(const TensorMatrix& block) { x_ = x_ + activation(product({block, read_residual()})); }

    // ---- norms ----

    Operand norm(const TensorNorm& norm) const { return rounded(apply(norm, x_)); }
    void norm_residual(const TensorNorm& norm) { x_ = apply(norm, x_); }

    Operand final_norm() {
        if (pass_.logit_rows.empty()) return {};
        const at::Tensor normed = apply(w_.weights.outer.vector(Role::final_norm), x_);
        keep_hidden(config_.n_layers + 1, normed);
        const std::vector<std::int64_t> wanted(pass_.logit_rows.begin(), pass_.logit_rows.end());
        return rounded(normed.index_select(0, to_tensor(wanted, w_.device)));
    }

    // ---- the two halves of a layer ----

    Operand column_linear(const TensorMatrix& matrix, const Operand& from, const Operand&) const {
        return {at::linear(from.rows, matrix.weight, matrix.bias), from.n_rows};
    }

    void rotate_and_append(int layer, const Operand& qkv) {
        const TensorsByRole& weights = w_.weights.layers[index(layer)];
        const std::int64_t n_queries = w_.shard.n_query_heads(), n_keys = w_.shard.n_kv_heads();
        const at::Tensor heads = qkv.rows.view({qkv.n_rows, n_queries + 2 * n_keys, config_.head_dim});
        at::Tensor both = heads.narrow(1, 0, n_queries + n_keys);
        if (config_.query_key_norm == QueryKeyNorm::head)
            both = at::cat({normed(weights.vector(Role::query_norm), heads.narrow(1, 0, n_queries)),
                            normed(weights.vector(Role::key_norm), heads.narrow(1, n_queries, n_keys))},
                           1);
        both = turned(both, config_.layer_rope(layer));
        queries_ = both.narrow(1, 0, n_queries);
        keys_and_values_ = {both.narrow(1, n_queries, n_keys), heads.narrow(1, n_queries + n_keys, n_keys)};
        if (w_.is_training) return;
        for (const Segment& segment : w_.layout.segments)
            for (const int which : {0, 1})
                put(slot_numbers(w_.cache, layer_of_cache(layer), which, segment.slot), segment.cached,
                    own_rows(which, segment));
    }

    Operand attend(int layer, const Operand&) {
        return of_segments([&](const Segment& segment) {
            const at::Tensor queries = queries_.narrow(0, segment.begin, segment.end - segment.begin);
            return attended(queries, cached(layer, 0, segment), cached(layer, 1, segment), mask_of(layer, segment));
        });
    }

    Operand attend_source(int layer, const Operand& query) {
        const at::Tensor heads = query.rows.view({query.n_rows, w_.shard.n_query_heads(), config_.head_dim});
        return of_segments([&](const Segment& segment) {
            return attended(heads.narrow(0, segment.begin, segment.end - segment.begin), of_source(layer, 0, segment),
                            of_source(layer, 1, segment), {});
        });
    }

    Operand feed_forward(const TensorsByRole& layer, const Operand& from) const {
        return activated(column_linear(layer[Role::up], from, {}));
    }

    // `wide` holds gate and up side by side, or up alone.
    Operand activated(const Operand& wide) const {
        if (!config_.gated_mlp) return {activation(wide.rows), wide.n_rows};
        const std::vector<at::Tensor> halves = wide.rows.chunk(2, 1);
        return {activation(halves[0]) * halves[1], wide.n_rows};
    }

    // Works in place, on a copy of the rows, since gradients use the values that were read.
    void norm_queries_and_keys(const TensorsByRole& layer, const Operand& qkv) const {
        const std::int64_t dim = config_.head_dim, n_queries = w_.shard.n_query_heads(), n_keys = w_.shard.n_kv_heads();
        const dist::HeadShard& heads = w_.shard.heads;
        const std::int64_t group = config_.n_heads / config_.n_kv_heads;
        std::vector<float> counts; // the rank with a KV head's first query head counts it
        for (std::int64_t h = heads.kv_heads.begin; h < heads.kv_heads.end; ++h)
            counts.push_back(heads.query_heads.contains(h * group) ? 1.0F : 0.0F);
        const at::Tensor read = qkv.rows.to(at::kFloat, false, true);
        const at::Tensor queries = read.narrow(1, 0, n_queries * dim),
                         keys = read.narrow(1, n_queries * dim, n_keys * dim);
        const at::Tensor of_queries = queries.square().sum(1, true);
        const at::Tensor of_keys =
            keys.square().view({qkv.n_rows, n_keys, dim}).sum(2).matmul(to_tensor(counts, w_.device).unsqueeze(1));
        const at::Tensor sums = summed(at::cat({of_queries, of_keys}, 1));
        const auto scaled = [&](const at::Tensor& part, int which, std::int64_t n_heads, const TensorNorm& norm) {
            const at::Tensor mean = sums.narrow(1, which, 1) / static_cast<double>(n_heads * dim);
            return part * (mean + config_.norm_epsilon).rsqrt() * norm.weight;
        };
        qkv.rows.narrow(1, 0, (n_queries + n_keys) * dim)
            .copy_(at::cat({scaled(queries, 0, config_.n_heads, layer.vector(Role::query_norm)),
                            scaled(keys, 1, config_.n_kv_heads, layer.vector(Role::key_norm))},
                           1));
    }

    // ---- experts: chosen on the host ----

    void choose_experts(const TensorsByRole& layer, const Operand& from) {
        router_products_ = at::linear(from.rows.to(at::kFloat), layer[Role::router].weight);
        const at::Tensor logits = router_products_.cpu().contiguous();
        const std::size_t n_chosen = index(config_.experts.n_chosen);
        std::vector<ChosenExpert> chosen(index(from.n_rows) * n_chosen);
        const std::vector<float> correction = floats_of(layer.vector(Role::router_correction).weight);
        for (int r = 0; r < from.n_rows; ++r)
            model::choose_experts(
                config_.experts,
                {logits.const_data_ptr<float>() + r * logits.size(1), index(config_.experts.n_experts)}, correction,
                std::span(chosen).subspan(index(r) * n_chosen, n_chosen));
        expert_rows_.set(config_.experts, chosen);
        expert_weights_ = weights_of(chosen);
    }

    void add_experts(const TensorsByRole& layer, const Operand& from) {
        at::Tensor sum = at::zeros({from.n_rows, config_.hidden_size}, x_.options());
        if (config_.experts.shared_size > 0) {
            Operand inner = feed_forward(layer, from);
            if (config_.experts.gated_shared)
                inner = rounded(inner.rows * at::sigmoid(router_products_.narrow(1, config_.experts.n_experts, 1)));
            sum = product({layer[Role::down], inner});
        }
        for (int e = 0; e < config_.experts.n_experts; ++e) {
            const int first = expert_rows_.begin[index(e)], count = expert_rows_.count(e);
            if (count == 0) continue;
            const TensorMatrix& expert_up = layer.all(Role::expert_up)[index(e)];
            const auto begin = expert_rows_.rows.begin() + first;
            const at::Tensor rows = to_tensor(std::vector<std::int64_t>(begin, begin + count), w_.device);
            const Operand wide = {at::linear(from.rows.index_select(0, rows), expert_up.weight), count};
            const at::Tensor weights = expert_weights_.narrow(1, e, 1).index_select(0, rows);
            const Operand inner = rounded(activated(wide).rows * weights);
            sum.index_add_(0, rows, product({layer.all(Role::expert_down)[index(e)], inner}));
        }
        x_ = x_ + summed(sum);
    }

    // ---- logits ----

    void head(const Operand& from) {
        at::Tensor logits = at::linear(from.rows, w_.weights.head().weight).to(at::kFloat);
        const at::Tensor& bias = w_.weights.outer.vector(Role::head_bias).weight;
        if (bias.defined()) logits = logits + bias;
        if (config_.logit_soft_cap > 0) logits = capped(logits, config_.logit_soft_cap);
        w_.logits = w_.is_training ? logits : logits.cpu().contiguous();
    }

  protected:
    TorchWorkspace& workspace() const { return w_; }
    int n_rows() const { return w_.layout.rows(); }
    // Writes rows [count][heads][head_dim] to positions [begin, begin + count) of a slot's keys or values.
    static void put(const at::Tensor& numbers, std::int64_t begin, const at::Tensor& rows) {
        numbers.narrow(1, begin, rows.size(0)).copy_(rows.transpose(0, 1));
    }
    // Returns keys (0) or values (1), [own key heads][capacity][head_dim].
    static at::Tensor slot_numbers(const BookedTensors& cache, int layer, int which, int slot) {
        return cache.numbers.select(0, layer).select(0, which).select(0, slot);
    }

  private:
    // Returns the rows' places in tables by position.
    at::Tensor places_of_rows() const {
        std::vector<std::int64_t> places;
        for (const Row& row : pass_.rows)
            places.push_back(row.position + config_.position_offset);
        return to_tensor(places, w_.device);
    }

    // Returns the angles of the rows.
    TorchAngles angles_of(const TorchAngles& all) const {
        if (!all.cosines.defined()) return {};
        return {all.cosines.index_select(0, places_).unsqueeze(1), all.sines.index_select(0, places_).unsqueeze(1)};
    }

    // Returns the numbers of a tensor in host memory; none if it is undefined.
    static std::vector<float> floats_of(const at::Tensor& tensor) {
        if (!tensor.defined()) return {};
        const at::Tensor stored = tensor.contiguous();
        return {stored.const_data_ptr<float>(), stored.const_data_ptr<float>() + stored.numel()};
    }

    Operand rounded(const at::Tensor& floats) const { return {floats.to(w_.type), static_cast<int>(floats.size(0))}; }

    void keep_hidden(int layer, const at::Tensor& states) {
        const std::size_t numbers = pass_.rows.size() * index(config_.hidden_size);
        for (std::size_t i = 0; i < pass_.hidden_layers.size(); ++i)
            if (pass_.hidden_layers[i] == layer)
                std::copy_n(states.cpu().contiguous().const_data_ptr<float>(), numbers, w_.hidden.data() + i * numbers);
    }

    // Norms the target's features.
    at::Tensor normed_features(const at::Tensor& features) const {
        const FusionConfig& fusion = config_.fusion;
        std::vector<at::Tensor> parts;
        std::int64_t done = 0;
        for (const TensorNorm& norm : w_.weights.outer.vectors(Role::feature_norm)) {
            parts.push_back(apply(norm, features.narrow(1, done, fusion.feature_norm_size)));
            done += fusion.feature_norm_size;
        }
        parts.push_back(features.narrow(1, done, fusion.feature_numbers() - done));
        const at::Tensor normed = at::cat(parts, 1);
        if (fusion.features_scale == 0) return normed;
        return at::rms_norm(normed, fusion.feature_numbers(), {}, fusion.kScaleEpsilon) * fusion.features_scale;
    }

    static at::Tensor product(const Product& one) {
        return at::linear(one.from.rows, one.matrix.weight, one.matrix.bias).to(at::kFloat);
    }

    // Sums over the ranks, in host memory.
    at::Tensor summed(const at::Tensor& part) const {
        if (w_.tp.size() == 1) return part;
        at::Tensor sum = part.cpu().contiguous();
        w_.tp.all_reduce_sum(sum.mutable_data_ptr<float>(), static_cast<std::size_t>(sum.numel()), w_.deadline);
        return sum.to(part.device());
    }

    static at::Tensor capped(const at::Tensor& scores, float cap) { return at::tanh(scores / cap) * cap; }

    at::Tensor activation(const at::Tensor& x) const {
        switch (config_.activation) {
        case Activation::silu:
            return at::silu(x);
        case Activation::gelu:
            return at::gelu(x);
        case Activation::gelu_tanh:
            return at::gelu(x, "tanh");
        case Activation::relu:
            return at::relu(x);
        }
        throw std::invalid_argument("an activation that the torch backend does not know");
    }

    // Returns x itself if there is no weight.
    static at::Tensor apply(const TensorNorm& norm, const at::Tensor& x) {
        if (!norm.weight.defined()) return x;
        if (norm.kind == Norm::layer) return at::layer_norm(x, x.size(-1), norm.weight, norm.bias, norm.epsilon);
        const at::Tensor normed = at::rms_norm(x, x.size(-1), norm.weight, norm.epsilon);
        return norm.bias.defined() ? normed + norm.bias : normed;
    }

    // [rows][heads][head_dim]
    at::Tensor normed(const TensorNorm& norm, const at::Tensor& heads) const {
        return at::rms_norm(heads.to(at::kFloat), config_.head_dim, norm.weight, config_.norm_epsilon);
    }
    at::Tensor turned(const at::Tensor& heads, LayerRope which) const {
        const TorchAngles& by = which == LayerRope::local ? local_angles_ : angles_;
        if (which == LayerRope::none || !by.cosines.defined()) return heads.to(w_.type);
        const std::int64_t dims = config_.rope.dims;
        const at::Tensor x = heads.to(at::kFloat), first = x.narrow(2, 0, dims);
        // A pair is (i, i + dims / 2), or two neighbouring numbers.
        const std::vector<std::int64_t> halves = {x.size(0), x.size(1), 2, dims / 2};
        const std::vector<std::int64_t> neighbours = {x.size(0), x.size(1), dims / 2, 2};
        const at::Tensor pairs =
            config_.rope.interleaved ? first.reshape(neighbours) : first.reshape(halves).transpose(2, 3);
        const at::Tensor a = pairs.select(3, 0), b = pairs.select(3, 1);
        at::Tensor turned =
            at::stack({at::addcmul(a * by.cosines, b, by.sines, -1), at::addcmul(b * by.cosines, a, by.sines)},
                      config_.rope.interleaved ? 3 : 2);
        return at::cat({turned.reshape(first.sizes()), x.narrow(2, dims, config_.head_dim - dims)}, 2).to(w_.type);
    }

    template <typename Function> Operand of_segments(const Function& attended_by) const {
        std::vector<at::Tensor> attended;
        for (const Segment& segment : w_.layout.segments)
            attended.push_back(attended_by(segment));
        return {attended.size() == 1 ? attended.front() : at::cat(attended), n_rows()};
    }

    // All layers of an encoder share one layer of cache.
    int layer_of_cache(int layer) const { return config_.is_encoder ? 0 : layer; }

    // Returns keys (0) or values (1) of the segment in the current layer, [rows][own key heads][head_dim].
    at::Tensor own_rows(int which, const Segment& segment) const {
        return keys_and_values_[index(which)].narrow(0, segment.begin, segment.end - segment.begin);
    }

    // Returns the weights of each row's experts, [rows][n_experts]; 0 for the others.
    at::Tensor weights_of(std::span<const ChosenExpert> chosen) const {
        const ExpertsConfig& experts = config_.experts;
        const at::Tensor logits = router_products_.narrow(1, 0, experts.n_experts);
        std::vector<float> is_chosen(index(n_rows()) * index(experts.n_experts));
        for (std::size_t i = 0; i < chosen.size(); ++i)
            is_chosen[i / index(experts.n_chosen) * index(experts.n_experts) + index(chosen[i].expert)] = 1;
        at::Tensor scores = experts.score == RouterScore::softmax ? at::softmax(logits, 1) : at::sigmoid(logits);
        scores = scores * to_tensor(is_chosen, w_.device).view(scores.sizes());
        if (experts.normalizes) scores = scores / (scores.sum(1, true) + 1e-20);
        return scores * experts.scale;
    }

    // Returns keys or values of the segment's slot and of the prefix in another slot; in training those of its rows.
    at::Tensor cached(int layer, int which, const Segment& segment) const {
        if (w_.is_training) return for_query_heads(own_rows(which, segment).transpose(0, 1));
        const KvCache::Prefix prefix = w_.cache.books->prefix(segment.slot);
        const std::int64_t end = segment.cached + segment.end - segment.begin;
        const auto of_slot = [&](int slot, std::int64_t begin, std::int64_t behind) {
            return slot_numbers(w_.cache, layer_of_cache(layer), which, slot).narrow(1, begin, behind - begin);
        };
        const at::Tensor own = of_slot(segment.slot, prefix.length, end);
        return for_query_heads(prefix.length == 0 ? own : at::cat({of_slot(prefix.slot, 0, prefix.length), own}, 1));
    }

    // Returns keys or values of the source of the segment's slot.
    at::Tensor of_source(int layer, int which, const Segment& segment) const {
        if (w_.is_training)
            return for_query_heads(w_.training_sources[index(segment.slot)][index(layer)][index(which)]);
        const int number = w_.cache.books->source(segment.slot), length = w_.sources.books->length(number);
        return for_query_heads(slot_numbers(w_.sources, layer, which, number).narrow(1, 0, length));
    }

    // Returns [1][heads][keys][head_dim], with one head per group of query heads.
    at::Tensor for_query_heads(const at::Tensor& numbers) const {
        return (w_.kv_heads.defined() ? numbers.index_select(0, w_.kv_heads) : numbers).unsqueeze(0);
    }

    // Attends for rows [rows][own query heads][head_dim]; returns [rows][own query heads * head_dim]. The query heads
    // of a key head count as further rows.
    at::Tensor attended(const at::Tensor& heads, const at::Tensor& keys, const at::Tensor& values,
                        const at::Tensor& mask) const {
        const std::int64_t rows = heads.size(0), dim = config_.head_dim;
        const at::Tensor queries = heads.transpose(0, 1).reshape({1, keys.size(1), w_.group * rows, dim});
        at::Tensor attended;
        if (config_.attention_soft_cap > 0) {
            at::Tensor scores = at::matmul(queries, keys.transpose(2, 3)).to(at::kFloat) * config_.attention_scale;
            scores = capped(scores, config_.attention_soft_cap);
            if (mask.defined()) scores = scores + mask;
            attended = at::matmul(at::softmax(scores, -1).to(w_.type), values);
        } else {
            attended = at::scaled_dot_product_attention(queries, keys, values,
                                                        mask.defined() ? std::optional(mask) : std::nullopt, 0, false,
                                                        config_.attention_scale);
        }
        return attended.view({keys.size(1), w_.group, rows, dim}).permute({2, 0, 1, 3}).reshape({rows, -1});
    }

    // Makes one mask for each window that layers have.
    const at::Tensor& mask_of(int layer, const Segment& segment) {
        const int window = config_.window(layer);
        const auto [known, is_new] = masks_.try_emplace({segment.begin, window});
        if (is_new) known->second = w_.mask_of(segment, window);
        return known->second;
    }

    TorchWorkspace& w_;
    const ModelConfig& config_;
    const Pass& pass_;
    at::Tensor places_;                         // [rows]
    at::Tensor x_;                              // [rows][hidden_size], float32
    TorchAngles angles_, local_angles_;         // [rows][1][rotary dims / 2]
    at::Tensor queries_;                        // [rows][own query heads][head_dim], of the current layer
    std::array<at::Tensor, 2> keys_and_values_; // [rows][own key heads][head_dim], of the current layer
    at::Tensor router_products_;                // [rows][experts, and the shared one's scale], of the current layer
    ExpertRows expert_rows_;                    // of the current layer
    at::Tensor expert_weights_;                 // [rows][experts], of the current layer
    Operand joined_;                            // for a draft head
    at::Tensor cell_, output_gate_;             // for a draft head that is an LSTM
    std::map<std::pair<int, int>, at::Tensor> masks_; // by the first row of a segment, and window
};

} // namespace entrodraft::model::torch
