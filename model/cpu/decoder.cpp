#include "model/cpu/decoder.h"

#include "model/cpu/attention.h"
#include "model/cpu/parallel_linear.h"
#include "model/cpu/weights.h"
#include "model/pass_layout.h"
#include "model/transformer.h"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

namespace entrodraft::model {

namespace {

// What the threads share in the passes of a decoder. Activations are [kMaxRows][...] of float32; outputs of matrices
// are as wide as these pad them, to whole units of 16.
struct Workspace {
    // All that is handed over outlives it.
    Workspace(const ModelConfig& model, const RankShard& held, const ModelWeights& packed, KvCache& cache, int threads);

    // Throws std::invalid_argument on rows that break decoder.h's contract.
    void begin_pass(const Pass& pass, const KvCache& cache);
    void merge_summaries(int n_threads);

    const ModelConfig& config;
    const RankShard& shard;
    const ModelWeights& weights;
    Attention attention;
    PassLayout layout; // of the pass at hand

    Buffer x;        // [hidden_size, padded]: the residual stream
    Buffer delta;    // as x: what Block::sandwich norms before it adds it
    Buffer embedded; // [embedding_size, padded], of a narrower embedding
    Buffer qkv;      // own query heads, key heads, value heads
    Buffer attended; // [own query heads][head_dim]
    Buffer gate, up; // own part of the MLP's width
    Buffer logits;   // own vocabulary
    Buffer normed;   // [threads][kMaxRows][hidden_size]
    Buffer scratch;  // [threads][scratch_floats], for PackedMatrix::multiply
    std::size_t scratch_floats;
    std::vector<float> hidden;                      // [hidden_layers][rows][hidden_size]
    std::vector<kernels::LaneStats> lane_stats;     // [threads][kMaxRows]
    std::vector<kernels::LogitStats> summary_parts; // [threads][kMaxRows]
    std::vector<kernels::LogitStats> summaries;     // [logit_rows]
};

std::size_t padded(int outputs) {
    return index((outputs + kernels::kLanes - 1) / kernels::kLanes * kernels::kLanes);
}

Workspace::Workspace(const ModelConfig& model, const RankShard& held, const ModelWeights& packed, KvCache& cache,
                     int threads)
    : config(model), shard(held), weights(packed), attention(model, held, cache, threads) {
    const auto rows_of = [](std::size_t width) { return Buffer(kMaxRows * width * sizeof(float)); };
    const LayerWeights& layer = weights.layers[0];
    x = rows_of(padded(config.hidden_size));
    if (config.block == Block::sandwich) delta = rows_of(padded(config.hidden_size));
    if (config.embedding_size != config.hidden_size) embedded = rows_of(padded(config.embedding_size));
    qkv = rows_of(layer.qkv.y_stride());
    attended = rows_of(index(shard.n_query_heads() * config.head_dim));
    up = rows_of(layer.up.y_stride());
    if (config.gated_mlp) gate = rows_of(layer.gate.y_stride());
    logits = rows_of(index(weights.head().n_padded()));
    normed = rows_of(index(threads) * index(config.hidden_size));
    const int widest =
        std::max({config.hidden_size, config.embedding_size, layer.output.matrix().k(), layer.down.matrix().k()});
    scratch_floats = kernels::linear_scratch_floats(kMaxRows, widest);
    scratch = Buffer(index(threads) * scratch_floats * sizeof(float));
    lane_stats.resize(index(threads) * kMaxRows);
    summary_parts.resize(index(threads) * kMaxRows);
}

void Workspace::begin_pass(const Pass& pass, const KvCache& cache) {
    layout.set(pass, config, cache);
    attention.cover(layout.last_position);
    hidden.resize(pass.hidden_layers.size() * pass.rows.size() * index(config.hidden_size));
}

// Puts the threads' parts of each row together.
void Workspace::merge_summaries(int n_threads) {
    summaries.clear();
    if (layout.pass.needs.summary == LogitSummary::none) return;
    for (std::size_t r = 0; r < layout.pass.logit_rows.size(); ++r) {
        kernels::LogitStats whole = summary_parts[r];
        for (int thread = 1; thread < n_threads; ++thread) {
            const kernels::LogitStats& part = summary_parts[index(thread) * kMaxRows + r];
            if (part.arg_max >= 0) whole = whole.arg_max >= 0 ? merge(whole, part) : part;
        }
        summaries.push_back(whole);
    }
}

// The operations of model/transformer.h, as one thread of the team takes part in them. One that reads what other
// threads have made begins with a barrier; one that changes the residual stream ends with one.
class CpuOps {
  public:
    using Operand = Activations;
    struct Product {
        const RowLinear& matrix;
        Operand from;
    };

    CpuOps(Workspace& workspace, const PassContext& context)
        : w_(workspace), config_(workspace.config), kernels_(*context.kernels), context_(context) {
        const std::size_t thread = index(context.thread), width = index(config_.hidden_size);
        context_.scratch = w_.scratch.as<float>() + thread * w_.scratch_floats;
        normed_ = {w_.normed.as<float>() + thread * kMaxRows * width, width, n_rows()};
    }

    const ModelWeights& weights() const { return w_.weights; }
    Operand residual() const { return rows_of(w_.x, padded(config_.hidden_size)); }
    Operand qkv() const { return rows_of(w_.qkv, w_.weights.layers[0].qkv.y_stride()); }
    Operand embedded() const { return rows_of(w_.embedded, padded(config_.embedding_size)); }

    // ---- the residual stream ----

    void embed() {
        const bool projects = config_.embedding_size != config_.hidden_size;
        const std::vector<float>& table = w_.weights.positions;
        const Operand x = residual(), tokens = projects ? embedded() : x;
        w_.weights.embedding.look_up(context_, w_.layout.tokens, tokens);
        if (!projects && table.empty() && config_.embedding_scale == 1) return;
        if (projects) column_linear(w_.weights.project_in, tokens, x);
        const dist::Slice mine = dist::even_slice(config_.hidden_size, context_.thread, n_threads(), kernels::kLanes);
        for (int r = 0; r < n_rows(); ++r) {
            const int place = w_.layout.pass.rows[index(r)].position + config_.position_offset;
            const float* position = table.empty() ? nullptr : &table[index(place) * index(config_.hidden_size)];
            for (std::int64_t i = mine.begin; i < mine.end; ++i)
                x.row(r)[i] = x.row(r)[i] * config_.embedding_scale + (position ? position[i] : 0.0f);
        }
        context_.barrier();
    }

    void add(std::initializer_list<Product> products) {
        const Operand x = residual();
        context_.barrier();
        bool onto = context_.carries_residual(); // the other ranks bring their parts alone
        for (const auto& [matrix, from] : products) {
            matrix.apply(context_, from, x, onto);
            onto = true;
        }
        context_.all_reduce(x.data, index(x.n_rows) * x.stride);
    }

    void add_normed(Product product, const NormWeights& norm) {
        const Operand x = residual(), delta = rows_of(w_.delta, x.stride);
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
        const Pass& pass = w_.layout.pass;
        float* to = w_.hidden.data();
        for (const int layer : pass.hidden_layers)
            for (int r = 0; r < n_rows(); ++r, to += config_.hidden_size)
                if (layer == layers_done) std::copy_n(residual().row(r), config_.hidden_size, to);
    }

    // ---- norms ----

    // Every thread norms all rows into its own memory: cheaper than meeting at a barrier.
    Operand norm(const NormWeights& norm) {
        for (int r = 0; r < n_rows(); ++r)
            apply_norm(norm, residual().row(r), normed_.row(r));
        return normed_;
    }

    void norm_residual(const NormWeights& norm) {
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r)
            apply_norm(norm, residual().row(r), residual().row(r));
        context_.barrier();
    }

    Operand final_norm() {
        Operand to = normed_;
        to.n_rows = 0;
        for (const int wanted : w_.layout.pass.logit_rows) {
            const float* from = residual().row(wanted);
            if (config_.final_norm)
                apply_norm(w_.weights.final_norm, from, to.row(to.n_rows));
            else
                std::copy_n(from, config_.hidden_size, to.row(to.n_rows));
            ++to.n_rows;
        }
        return to;
    }

    // ---- the two halves of a layer: each thread makes its own outputs ----

    Operand column_linear(const ColumnLinear& matrix, Operand from, Operand to) {
        matrix.apply(context_, from, to);
        return {to.data, to.stride, from.n_rows};
    }

    void rotate_and_append(int layer, Operand qkv) {
        context_.barrier();
        w_.attention.append(context_, attention_of(layer, qkv));
    }

    Operand attend(int layer, Operand qkv) {
        const Attention::Task task = attention_of(layer, qkv);
        w_.attention.attend(context_, task);
        return task.attended;
    }

    Operand gate_up(const LayerWeights& layer, Operand from) {
        if (config_.gated_mlp) layer.gate.apply(context_, from, rows_of(w_.gate, layer.gate.y_stride()));
        return column_linear(layer.up, from, rows_of(w_.up, layer.up.y_stride()));
    }

    Operand activate(const LayerWeights& layer, Operand up) {
        const Operand inner = config_.gated_mlp ? rows_of(w_.gate, layer.gate.y_stride()) : up;
        const dist::Slice mine = layer.up.matrix().outputs_of(context_.thread);
        for (int r = 0; r < n_rows(); ++r)
            kernels_.activate(config_.activation, inner.row(r) + mine.begin,
                              config_.gated_mlp ? up.row(r) + mine.begin : nullptr, static_cast<int>(mine.size()));
        return inner;
    }

    // ---- logits ----

    void head(Operand from) {
        if (from.data != normed_.data) context_.barrier(); // projected, by all threads
        const PackedMatrix& matrix = w_.weights.head();
        const Operand logits = {w_.logits.as<float>(), index(matrix.n_padded()), from.n_rows};
        const LogitSummary summary = w_.layout.pass.needs.summary;
        // The multiplication keeps up the sums for the entropy of logits that stay as they are.
        const bool has_sums =
            summary == LogitSummary::entropy && w_.weights.head_bias.empty() && config_.logit_soft_cap == 0;
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

  private:
    int n_rows() const { return w_.layout.rows(); }
    int n_threads() const { return context_.team->size(); }
    dist::Slice own_rows() const { return dist::even_slice(n_rows(), context_.thread, n_threads()); }
    Operand rows_of(Buffer& buffer, std::size_t stride) const { return {buffer.as<float>(), stride, n_rows()}; }
    template <typename T> T* own(std::vector<T>& parts) const { return &parts[index(context_.thread) * kMaxRows]; }

    void apply_norm(const NormWeights& norm, const float* from, float* to) const {
        if (config_.norm == Norm::rms)
            kernels_.rms_norm(from, norm.weight.data(), config_.hidden_size, config_.norm_epsilon, to);
        else
            kernels_.layer_norm(from, norm.weight.data(), norm.bias.data(), config_.hidden_size, config_.norm_epsilon,
                                to);
    }

    Attention::Task attention_of(int layer, Operand qkv) const {
        return {&w_.layout, &w_.weights.layers[index(layer)], layer, qkv,
                rows_of(w_.attended, index(w_.shard.n_query_heads() * config_.head_dim))};
    }

    // What the family does to logits, to this thread's.
    void finish_logits(Operand logits) const {
        const std::vector<float>& bias = w_.weights.head_bias;
        const dist::Slice mine = w_.weights.head().outputs_of(context_.thread);
        for (int r = 0; r < logits.n_rows; ++r) {
            for (std::int64_t i = mine.begin; i < mine.end && !bias.empty(); ++i)
                logits.row(r)[i] += bias[static_cast<std::size_t>(i)];
            if (config_.logit_soft_cap > 0)
                kernels_.soft_cap(logits.row(r) + mine.begin, config_.logit_soft_cap, static_cast<int>(mine.size()));
        }
    }

    // Of this rank's slice of the vocabulary, the tokens that count in summaries.
    int counted_outputs() const {
        const int known = w_.layout.pass.summary_vocab > 0 ? w_.layout.pass.summary_vocab : config_.vocab_size;
        return static_cast<int>(std::clamp<std::int64_t>(known - w_.shard.vocab.begin, 0, w_.shard.vocab.size()));
    }

    // Of this thread's outputs of each row.
    void summarize(Operand logits, bool has_sums) const {
        const dist::Slice mine = w_.weights.head().outputs_of(context_.thread);
        const int begin = static_cast<int>(mine.begin), first_token = static_cast<int>(w_.shard.vocab.begin) + begin;
        const int n = std::clamp(counted_outputs() - begin, 0, static_cast<int>(mine.size()));
        for (int r = 0; r < logits.n_rows; ++r) {
            const float* row = logits.row(r) + begin;
            kernels::LogitStats& part = own(w_.summary_parts)[r];
            part = {};
            if (n == 0) continue;
            if (w_.layout.pass.needs.summary == LogitSummary::max)
                part = kernels_.logit_max(row, n, first_token);
            else if (has_sums)
                part = kernels_.finish_stats(own(w_.lane_stats)[r], row, n, first_token);
            else
                part = kernels_.logit_stats(row, n, first_token);
        }
    }

    Workspace& w_;
    const ModelConfig& config_;
    const kernels::Kernels& kernels_;
    PassContext context_;
    Operand normed_; // this thread's
};

class CpuDecoder final : public Decoder {
  public:
    CpuDecoder(const Checkpoint& checkpoint, const DecoderSetup& setup, const DecoderOptions& options,
               dist::Communicator& tp, ThreadTeam& team)
        : Decoder(setup, std::make_shared<KvCache>(setup.cache)), tp_(tp), team_(team),
          kernels_(options.kernels ? *options.kernels : kernels::best_kernels()),
          timeout_seconds_(options.timeout_seconds),
          weights_(checkpoint, config_, shard_, options.weight_type, team, options.progress),
          workspace_(config_, shard_, weights_, *cache_, team.size()) {}

    std::size_t weight_bytes() const override { return weights_.bytes_per_pass; }
    double operations_per_row() const override { return weights_.operations_per_row; }

    PassResult forward(const Pass& pass) override {
        if (pass.needs.extension != nullptr) throw std::invalid_argument("a pass on a CPU has no extension on a GPU");
        workspace_.begin_pass(pass, *cache_);
        std::exception_ptr failure;
        const auto deadline = dist::Deadline::after_seconds(timeout_seconds_);
        team_.run([&](int thread) {
            CpuOps ops(workspace_, {&kernels_, &team_, &tp_, deadline, thread, nullptr, &failure});
            run_transformer(config_, ops);
        });
        if (failure) std::rethrow_exception(failure);
        for (const Segment& segment : workspace_.layout.segments)
            cache_->append(segment.slot, segment.end - segment.begin);
        workspace_.merge_summaries(team_.size());
        const std::size_t stride = index(weights_.head().n_padded());
        return {{workspace_.logits.as<float>(), pass.logit_rows.size() * stride},
                stride,
                workspace_.summaries,
                {},
                workspace_.hidden};
    }

  private:
    dist::Communicator& tp_;
    ThreadTeam& team_;
    const kernels::Kernels& kernels_;
    double timeout_seconds_;
    ModelWeights weights_;
    Workspace workspace_;
};

} // namespace

std::unique_ptr<Decoder> load_cpu_decoder(const Checkpoint& checkpoint, const ModelConfig& config,
                                          const DecoderOptions& options, dist::Communicator& tp, ThreadTeam& team) {
    if (options.weight_type == WeightType::float8)
        throw std::invalid_argument("float8 weights are for GPUs; CPUs have int8");
    return std::make_unique<CpuDecoder>(checkpoint, prepare_decoder(checkpoint, config, options, tp), options, tp,
                                        team);
}

} // namespace entrodraft::model
