// A decoder whose operations are ATen's, on any device that ATen knows. See plugin.h.
#include "model/torch/plugin.h"
#include "model/torch/workspace.h"
#include "model/transformer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
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
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace entrodraft::model::torch {

namespace {

using at::Tensor;

at::ScalarType scalar_type(WeightType type) {
    switch (type) {
    case WeightType::float32:
        return at::kFloat;
    case WeightType::bfloat16:
        return at::kBFloat16;
    case WeightType::float16:
        return at::kHalf;
    case WeightType::int8:
    case WeightType::float8:
        break;
    }
    throw std::invalid_argument("the torch backend has float32, bfloat16 and float16 weights, not " + to_string(type));
}

// The operations of model/transformer.h. The residual stream is float32, other activations are of the weights' type.
class TorchOps {
  public:
    struct Operand { // [n_rows][width]
        Tensor rows;
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
    Operand residual() const { return rounded(x_); }
    Operand qkv() const { return {}; } // results are tensors of their own
    Operand embedded() const { return {}; }

    // ---- the residual stream ----

    void embed() {
        if (config_.fusion.kind == Fusion::features) return; // has no embedding
        const dist::Slice own = w_.shard.vocab;
        std::vector<std::int64_t> tokens;
        std::vector<float> is_own;
        for (const Row& row : pass_.rows) {
            is_own.push_back(own.contains(row.token) ? 1.0F : 0.0F);
            tokens.push_back(own.contains(row.token) ? row.token - own.begin : 0);
        }
        const Tensor& table = w_.weights.embedding.weight;
        if (own.size() > 0)
            x_ = table.index_select(0, to_tensor(tokens, w_.device)).to(at::kFloat);
        else // of more ranks than units of the vocabulary
            x_ = at::zeros({w_.layout.rows(), config_.embedding_size}, table.options().dtype(at::kFloat));
        if (w_.tp.size() > 1) x_ = summed(x_ * to_tensor(is_own, w_.device).unsqueeze(1));
        if (config_.embedding_size != config_.hidden_size) x_ = product({w_.weights.project_in, rounded(x_)});
        if (config_.embedding_scale != 1) x_ = x_ * config_.embedding_scale;
        if (w_.weights.positions.defined()) x_ = x_ + w_.weights.positions.index_select(0, places_);
    }

    void add(std::initializer_list<Product> products) {
        Tensor sum;
        for (const Product& one : products)
            sum = sum.defined() ? sum + product(one) : product(one);
        x_ = x_ + summed(sum);
    }

    void add_normed(const Product& one, const TensorNorm& norm) { x_ = x_ + apply(norm, summed(product(one))); }

    void keep_hidden(int layers_done) { keep_hidden(layers_done, x_); }

    // ---- a draft head's fusion ----

    bool has_features() const { return !pass_.features.empty(); }

    Tensor features() {
        const auto rows = std::ssize(pass_.rows), width = std::ssize(pass_.features) / rows;
        const Tensor states = at::from_blob(const_cast<float*>(pass_.features.data()), {rows, width}, at::kFloat)
                                  .to(w_.device, at::kFloat, false, true);
        if (pass_.features_are_own) return states;
        const FusionConfig& fusion = config_.fusion;
        if (fusion.cell_size > 0) cell_ = states.narrow(1, fusion.feature_numbers(), fusion.cell_size);
        const Tensor normed = normed_features(states.narrow(1, 0, fusion.feature_numbers()));
        if (!config_.fusion.projects_features) return normed;
        return product({w_.weights.fusion.feature_projection, rounded(normed)});
    }

    Operand joined() const { return joined_; }
    Operand join(const Tensor& features) {
        const FusionConfig& fusion = config_.fusion;
        std::vector<Tensor> parts = {apply(w_.weights.fusion.embedding_norm, x_),
                                     apply(w_.weights.fusion.state_norm, features)};
        if (fusion.kind == Fusion::concat || fusion.features_first) std::swap(parts[0], parts[1]);
        joined_ = rounded(at::cat(parts, 1));
        return joined_;
    }

    void fuse(const Operand& joined) { x_ = product({w_.weights.fusion.linear, joined}); }
    void fuse_activated(const Operand& joined) {
        x_ = product({w_.weights.fusion.skip, joined}) + activation(product({w_.weights.fusion.linear, joined}));
    }
    void add_features(const Tensor& features) { x_ = activation(apply(w_.weights.fusion.sum_norm, x_ + features)); }
    void lstm_cell(const Tensor& gates) {
        const Tensor sums = gates.view({gates.size(0), 4, config_.hidden_size}) + x_.unsqueeze(1);
        const auto gate = [&](int number) { return at::sigmoid(sums.select(1, number)); }; // forget, input, output
        x_ = gate(1) * activation(apply(w_.weights.fusion.cell_norm, sums.select(1, 3)));
        if (cell_.defined()) x_ = x_ + cell_ * gate(0);
        output_gate_ = gate(2);
    }
    void lstm_output(const Tensor&) { x_ = activation(apply(w_.weights.fusion.sum_norm, x_)) * output_gate_; }
    void replace_residual(const Tensor& features) {
        x_ = config_.fusion.normed_residual ? apply(w_.weights.fusion.state_norm, features) : features;
    }
    void add_activated(const TensorMatrix& block) { x_ = x_ + activation(product({block, residual()})); }

    // ---- norms ----

    Operand norm(const TensorNorm& norm) const { return rounded(apply(norm, x_)); }
    void norm_residual(const TensorNorm& norm) { x_ = apply(norm, x_); }

    Operand final_norm() {
        if (pass_.logit_rows.empty()) return {};
        const Tensor normed = apply(w_.weights.final_norm, x_);
        keep_hidden(config_.n_layers + 1, normed);
        const std::vector<std::int64_t> wanted(pass_.logit_rows.begin(), pass_.logit_rows.end());
        return rounded(normed.index_select(0, to_tensor(wanted, w_.device)));
    }

    // ---- the two halves of a layer ----

    Operand column_linear(const TensorMatrix& matrix, const Operand& from, const Operand&) const {
        return {at::linear(from.rows, matrix.weight, matrix.bias), from.n_rows};
    }

    void rotate_and_append(int layer, const Operand& qkv) {
        const TensorLayer& weights = w_.weights.layers[index(layer)];
        const std::int64_t n_queries = w_.shard.n_query_heads(), n_keys = w_.shard.n_kv_heads();
        const Tensor heads = qkv.rows.view({qkv.n_rows, n_queries + 2 * n_keys, config_.head_dim});
        Tensor both = heads.narrow(1, 0, n_queries + n_keys);
        if (config_.query_key_norm == QueryKeyNorm::head)
            both = at::cat({normed(weights.query_norm, heads.narrow(1, 0, n_queries)),
                            normed(weights.key_norm, heads.narrow(1, n_queries, n_keys))},
                           1);
        both = turned(both, config_.layer_rope(layer));
        queries_ = both.narrow(1, 0, n_queries);
        const Tensor keys = both.narrow(1, n_queries, n_keys);
        const Tensor values = heads.narrow(1, n_queries + n_keys, n_keys);
        for (const Segment& segment : w_.layout.segments)
            for (const auto& [which, rows] : {std::pair(0, keys), std::pair(1, values)}) {
                const std::int64_t count = segment.end - segment.begin;
                slot_numbers(layer, which, segment.slot)
                    .narrow(1, segment.cached, count)
                    .copy_(rows.narrow(0, segment.begin, count).transpose(0, 1));
            }
    }

    Operand attend(int layer, const Operand& qkv) {
        std::vector<Tensor> attended;
        for (const Segment& segment : w_.layout.segments)
            attended.push_back(attend(layer, segment));
        return {attended.size() == 1 ? attended.front() : at::cat(attended), qkv.n_rows};
    }

    Operand gate_up(const TensorLayer& layer, const Operand& from) const { return column_linear(layer.wide, from, {}); }

    Operand activate(const TensorLayer&, const Operand& wide) const {
        if (!config_.gated_mlp) return {activation(wide.rows), wide.n_rows};
        const std::vector<Tensor> halves = wide.rows.chunk(2, 1);
        return {activation(halves[0]) * halves[1], wide.n_rows};
    }

    // In place.
    void norm_queries_and_keys(const TensorLayer& layer, const Operand& qkv) const {
        const std::int64_t dim = config_.head_dim, n_queries = w_.shard.n_query_heads(), n_keys = w_.shard.n_kv_heads();
        const dist::HeadShard& heads = w_.shard.heads;
        const std::int64_t group = config_.n_heads / config_.n_kv_heads;
        std::vector<float> counts; // of a KV head that several ranks have, the one with its first query head counts
        for (std::int64_t h = heads.kv_heads.begin; h < heads.kv_heads.end; ++h)
            counts.push_back(heads.query_heads.contains(h * group) ? 1.0F : 0.0F);
        const Tensor queries = qkv.rows.narrow(1, 0, n_queries * dim),
                     keys = qkv.rows.narrow(1, n_queries * dim, n_keys * dim);
        const Tensor of_queries = queries.to(at::kFloat).square().sum(1, true);
        const Tensor of_keys = keys.to(at::kFloat)
                                   .square()
                                   .view({qkv.n_rows, n_keys, dim})
                                   .sum(2)
                                   .matmul(to_tensor(counts, w_.device).unsqueeze(1));
        const Tensor sums = summed(at::cat({of_queries, of_keys}, 1));
        const auto scale = [&](const Tensor& part, int which, std::int64_t n_heads, const TensorNorm& norm) {
            const Tensor mean = sums.narrow(1, which, 1) / static_cast<double>(n_heads * dim);
            part.copy_(part.to(at::kFloat) * (mean + config_.norm_epsilon).rsqrt() * norm.weight);
        };
        scale(queries, 0, config_.n_heads, layer.query_norm);
        scale(keys, 1, config_.n_kv_heads, layer.key_norm);
    }

    // ---- experts: chosen on the host ----

    void choose_experts(const TensorLayer& layer, const Operand& from) {
        router_products_ = at::linear(from.rows.to(at::kFloat), layer.router.weight);
        const Tensor logits = router_products_.cpu().contiguous();
        const std::size_t n_chosen = index(config_.experts.n_chosen);
        std::vector<ChosenExpert> chosen(index(from.n_rows) * n_chosen);
        for (int r = 0; r < from.n_rows; ++r)
            model::choose_experts(
                config_.experts,
                {logits.const_data_ptr<float>() + r * logits.size(1), index(config_.experts.n_experts)},
                layer.router_correction, std::span(chosen).subspan(index(r) * n_chosen, n_chosen));
        expert_rows_.set(config_.experts, chosen);
    }

    void add_experts(const TensorLayer& layer, const Operand& from) {
        Tensor sum = at::zeros({from.n_rows, config_.hidden_size}, x_.options());
        if (config_.experts.shared_size > 0) {
            Operand inner = activate(layer, gate_up(layer, from));
            if (config_.experts.gated_shared)
                inner = rounded(inner.rows * at::sigmoid(router_products_.narrow(1, config_.experts.n_experts, 1)));
            sum = product({layer.down, inner});
        }
        for (int e = 0; e < config_.experts.n_experts; ++e) {
            const int first = expert_rows_.begin[index(e)], count = expert_rows_.count(e);
            if (count == 0) continue;
            const TensorExpert& expert = layer.experts[index(e)];
            const auto part = [&](const auto& all) { // as tensors have them
                using Number = std::conditional_t<std::is_same_v<std::decay_t<decltype(all)>, std::vector<int>>,
                                                  std::int64_t, float>;
                return to_tensor(std::vector<Number>(all.begin() + first, all.begin() + first + count), w_.device);
            };
            const Tensor rows = part(expert_rows_.rows);
            const Operand wide = {at::linear(from.rows.index_select(0, rows), expert.wide.weight), count};
            const Operand inner = rounded(activate(layer, wide).rows * part(expert_rows_.weights).unsqueeze(1));
            sum.index_add_(0, rows, product({expert.down, inner}));
        }
        x_ = x_ + summed(sum);
    }

    // ---- logits ----

    void head(const Operand& from) {
        Tensor logits = at::linear(from.rows, w_.weights.head().weight).to(at::kFloat);
        if (w_.weights.head_bias.defined()) logits = logits + w_.weights.head_bias;
        if (config_.logit_soft_cap > 0) logits = capped(logits, config_.logit_soft_cap);
        w_.logits = logits.cpu().contiguous();
    }

  private:
    // In tables by position.
    Tensor places_of_rows() const {
        std::vector<std::int64_t> places;
        for (const Row& row : pass_.rows)
            places.push_back(row.position + config_.position_offset);
        return to_tensor(places, w_.device);
    }

    // Of the rows.
    TorchAngles angles_of(const TorchAngles& all) const {
        if (!all.cosines.defined()) return {};
        return {all.cosines.index_select(0, places_).unsqueeze(1), all.sines.index_select(0, places_).unsqueeze(1)};
    }

    Operand rounded(const Tensor& floats) const { return {floats.to(w_.type), static_cast<int>(floats.size(0))}; }

    void keep_hidden(int layer, const Tensor& states) {
        const std::size_t numbers = pass_.rows.size() * index(config_.hidden_size);
        for (std::size_t i = 0; i < pass_.hidden_layers.size(); ++i)
            if (pass_.hidden_layers[i] == layer)
                std::copy_n(states.cpu().contiguous().const_data_ptr<float>(), numbers, w_.hidden.data() + i * numbers);
    }

    // Of the target's features.
    Tensor normed_features(const Tensor& features) const {
        const FusionConfig& fusion = config_.fusion;
        std::vector<Tensor> parts;
        std::int64_t done = 0;
        for (const TensorNorm& norm : w_.weights.fusion.feature_norms) {
            parts.push_back(apply(norm, features.narrow(1, done, fusion.feature_norm_size)));
            done += fusion.feature_norm_size;
        }
        parts.push_back(features.narrow(1, done, fusion.feature_numbers() - done));
        const Tensor normed = at::cat(parts, 1);
        if (fusion.features_scale == 0) return normed;
        return at::rms_norm(normed, fusion.feature_numbers(), {}, fusion.kScaleEpsilon) * fusion.features_scale;
    }

    static Tensor product(const Product& one) {
        return at::linear(one.from.rows, one.matrix.weight, one.matrix.bias).to(at::kFloat);
    }

    // Over the ranks, in host memory.
    Tensor summed(const Tensor& part) const {
        if (w_.tp.size() == 1) return part;
        Tensor sum = part.cpu().contiguous();
        w_.tp.all_reduce_sum(sum.mutable_data_ptr<float>(), static_cast<std::size_t>(sum.numel()), w_.deadline);
        return sum.to(part.device());
    }

    static Tensor capped(const Tensor& scores, float cap) { return at::tanh(scores / cap) * cap; }

    Tensor activation(const Tensor& x) const {
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

    // No weight: as it is.
    static Tensor apply(const TensorNorm& norm, const Tensor& x) {
        if (!norm.weight.defined()) return x;
        if (norm.kind == Norm::layer) return at::layer_norm(x, x.size(-1), norm.weight, norm.bias, norm.epsilon);
        const Tensor normed = at::rms_norm(x, x.size(-1), norm.weight, norm.epsilon);
        return norm.bias.defined() ? normed + norm.bias : normed;
    }

    // [rows][heads][head_dim]
    Tensor normed(const TensorNorm& norm, const Tensor& heads) const {
        return at::rms_norm(heads.to(at::kFloat), config_.head_dim, norm.weight, config_.norm_epsilon);
    }
    Tensor turned(const Tensor& heads, LayerRope which) const {
        const TorchAngles& by = which == LayerRope::local ? local_angles_ : angles_;
        if (which == LayerRope::none || !by.cosines.defined()) return heads.to(w_.type);
        const std::int64_t dims = config_.rope.dims;
        const Tensor x = heads.to(at::kFloat), first = x.narrow(2, 0, dims);
        // A pair is (i, i + dims / 2), or two neighbours.
        const std::vector<std::int64_t> halves = {x.size(0), x.size(1), 2, dims / 2};
        const std::vector<std::int64_t> neighbours = {x.size(0), x.size(1), dims / 2, 2};
        const Tensor pairs =
            config_.rope.interleaved ? first.reshape(neighbours) : first.reshape(halves).transpose(2, 3);
        const Tensor a = pairs.select(3, 0), b = pairs.select(3, 1);
        Tensor turned =
            at::stack({at::addcmul(a * by.cosines, b, by.sines, -1), at::addcmul(b * by.cosines, a, by.sines)},
                      config_.rope.interleaved ? 3 : 2);
        return at::cat({turned.reshape(first.sizes()), x.narrow(2, dims, config_.head_dim - dims)}, 2).to(w_.type);
    }

    // Keys (0) or values (1), [own key heads][capacity][head_dim].
    Tensor slot_numbers(int layer, int which, int slot) const {
        return w_.cached.select(0, layer).select(0, which).select(0, slot);
    }
    // Those of the segment's slot, with the beginning that another slot holds: [1][heads][keys][head_dim].
    Tensor cached(int layer, int which, const Segment& segment) const {
        const KvCache::Prefix prefix = w_.cache.prefix(segment.slot);
        const std::int64_t end = segment.cached + segment.end - segment.begin;
        const Tensor own = slot_numbers(layer, which, segment.slot).narrow(1, prefix.length, end - prefix.length);
        const Tensor all = prefix.length == 0
                               ? own
                               : at::cat({slot_numbers(layer, which, prefix.slot).narrow(1, 0, prefix.length), own}, 1);
        return (w_.kv_heads.defined() ? all.index_select(0, w_.kv_heads) : all).unsqueeze(0);
    }

    // The rows' attended values, [rows][own query heads * head_dim]. The query heads of a key head are further rows.
    Tensor attend(int layer, const Segment& segment) {
        const std::int64_t rows = segment.end - segment.begin, dim = config_.head_dim;
        const Tensor keys = cached(layer, 0, segment), values = cached(layer, 1, segment);
        const Tensor queries =
            queries_.narrow(0, segment.begin, rows).transpose(0, 1).reshape({1, keys.size(1), w_.group * rows, dim});
        const Tensor& mask = mask_of(layer, segment);
        Tensor attended;
        if (config_.attention_soft_cap > 0) {
            Tensor scores = at::matmul(queries, keys.transpose(2, 3)).to(at::kFloat) * config_.attention_scale;
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

    // Made once for each window that layers have.
    const Tensor& mask_of(int layer, const Segment& segment) {
        const int window = config_.window(layer);
        const auto [known, is_new] = masks_.try_emplace({segment.begin, window});
        if (is_new) known->second = w_.mask_of(segment, window);
        return known->second;
    }

    TorchWorkspace& w_;
    const ModelConfig& config_;
    const Pass& pass_;
    Tensor places_;                               // [rows]
    Tensor x_;                                    // [rows][hidden_size], float32
    TorchAngles angles_, local_angles_;           // [rows][1][rotary dims / 2]
    Tensor queries_;                              // [rows][own query heads][head_dim], of the layer at hand
    Tensor router_products_;                      // [rows][experts, and the shared one's scale], of the layer at hand
    ExpertRows expert_rows_;                      // of the layer at hand
    Operand joined_;                              // of a draft head
    Tensor cell_, output_gate_;                   // of a draft head that is an LSTM
    std::map<std::pair<int, int>, Tensor> masks_; // by the first row of a segment, and window
};

// Errors of ATen without the stack behind their message.
template <typename Work> void in_one_line(const Work& work) {
    try {
        work();
    } catch (const c10::Error& error) {
        throw std::runtime_error(std::string("torch: ") + error.what_without_backtrace());
    }
}

class TorchDecoder final : public Decoder {
  public:
    TorchDecoder(const Checkpoint& checkpoint, const DecoderSetup& setup, const DecoderOptions& options,
                 dist::Communicator& tp, std::unique_ptr<TensorCache> memory, Tensor cache_numbers)
        : Decoder(setup, std::make_shared<KvCache>(setup.cache, std::move(memory))),
          timeout_seconds_(options.timeout_seconds),
          weights_(checkpoint, config_, shard_, cache_numbers.options(), options.progress),
          workspace_(config_, shard_, weights_, *cache_, cache_numbers, tp) {}

    std::size_t weight_bytes() const override { return weights_.bytes_per_pass; }
    double operations_per_row() const override { return weights_.operations_per_row; }

    PassResult forward(const Pass& pass) override {
        if (pass.needs.extension != nullptr)
            throw std::invalid_argument("a pass of the torch backend has no extension on a GPU");
        const c10::InferenceMode mode;
        TorchWorkspace& w = workspace_;
        w.layout.set(pass, config_, *cache_, {.max_prompt_rows = max_prompt_rows()});
        w.deadline = dist::Deadline::after_seconds(timeout_seconds_);
        w.hidden.resize(pass.hidden_layers.size() * pass.rows.size() * index(config_.hidden_size));
        in_one_line([&] {
            TorchOps ops(w);
            run_transformer(config_, ops);
        });
        for (const Segment& segment : w.layout.segments)
            cache_->append(segment.slot, segment.end - segment.begin);
        const auto n_outputs = static_cast<std::size_t>(shard_.outputs.size());
        const std::size_t n_rows = pass.logit_rows.size();
        const float* logits = n_rows > 0 ? w.logits.const_data_ptr<float>() : nullptr;
        summarize(pass, logits);
        return {{logits, n_rows * n_outputs}, n_outputs, summaries_, {}, w.hidden};
    }

  private:
    // By the kernels of the CPU: the logits are in host memory.
    void summarize(const Pass& pass, const float* logits) {
        const kernels::Kernels& kernels = kernels::best_kernels();
        summaries_.assign(pass.needs.summary == LogitSummary::none ? 0 : pass.logit_rows.size(), {});
        const int known = pass.summary_vocab > 0 ? pass.summary_vocab : config_.n_outputs();
        const dist::Slice own = shard_.outputs;
        const auto n = static_cast<int>(std::clamp<std::int64_t>(known - own.begin, 0, own.size()));
        const auto summary = pass.needs.summary == LogitSummary::max ? kernels.logit_max : kernels.logit_stats;
        at::parallel_for(0, std::ssize(summaries_), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t r = begin; r < end && n > 0; ++r)
                summaries_[static_cast<std::size_t>(r)] =
                    summary(logits + r * own.size(), n, static_cast<int>(own.begin));
        });
    }

    double timeout_seconds_;
    TensorWeights weights_;
    TorchWorkspace workspace_;
    std::vector<kernels::LogitStats> summaries_;
};

// Another version may have all symbols, and other types behind them.
std::string why_unusable() {
    constexpr std::string_view kVersion = "TORCH_VERSION=";
    const std::string config = at::show_config(); // "..., TORCH_VERSION=2.11.0, USE_CUDA=ON, ..."
    const std::size_t key = config.find(kVersion);
    const std::size_t begin = key == std::string::npos ? config.size() : key + kVersion.size();
    const std::string found = config.substr(begin, config.find(',', begin) - begin);
    if (found == ENTRODRAFT_TORCH_VERSION) return "";
    Dl_info library = {};
    dladdr(reinterpret_cast<const void*>(&at::show_config), &library);
    return "was built over torch " ENTRODRAFT_TORCH_VERSION " and finds " + (found.empty() ? "another" : found) +
           (library.dli_fname ? std::string(" (") + library.dli_fname + ")" : "");
}

// ATen's code for a kind of device lies in a library of its own, which registers it. Empty, or why it is not there.
std::string load_device_code(const std::string& type) {
    if (type == "cpu" || dlopen(("libtorch_" + type + ".so").c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return "";
    return "torch " ENTRODRAFT_TORCH_VERSION " has no code for it (" + std::string(dlerror()) + ")";
}

Devices devices(const std::string& type) {
    if (const std::string why = load_device_code(type); !why.empty()) return {0, why};
    const c10::DeviceType of = c10::Device(type).type();
    const int count = c10::impl::hasDeviceGuardImpl(of) ? c10::impl::getDeviceGuardImpl(of)->deviceCount() : 0;
    return {count, count > 0 ? "" : "torch sees none (no device, no driver, or none is visible)"};
}

std::unique_ptr<Decoder> load(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                              dist::Communicator& tp, const Place& place) {
    const c10::InferenceMode mode;
    const DecoderSetup setup = prepare_decoder(checkpoint, config, options, tp);
    if (const std::string what = what_needs_cpu(config, OtherDevice::torch); !what.empty())
        throw std::invalid_argument("the torch backend cannot run a model with " + what);
    if (const std::string why = load_device_code(place.device.substr(0, place.device.find(':'))); !why.empty())
        throw std::invalid_argument("device " + place.device + ": " + why);
    at::set_num_threads(place.threads);
    std::unique_ptr<Decoder> decoder;
    in_one_line([&] {
        auto memory = std::make_unique<TensorCache>(
            setup.cache, at::TensorOptions(c10::Device(place.device)).dtype(scalar_type(options.weight_type)));
        const Tensor numbers = memory->numbers();
        decoder = std::make_unique<TorchDecoder>(checkpoint, setup, options, tp, std::move(memory), numbers);
    });
    return decoder;
}

} // namespace

extern "C" __attribute__((visibility("default")))
const Plugin entrodraft_torch = {ENTRODRAFT_PLUGIN_VERSION, &why_unusable, &devices, &load};

} // namespace entrodraft::model::torch
