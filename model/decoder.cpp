// The one forward pass, over this rank's heads and this rank's slice of the MLP. Every thread walks the whole pass;
// what they share out is outputs, heads and rows, and they meet at barriers.
#include "model/decoder.h"

#include "model/attention.h"
#include "model/cpu/parallel_linear.h"
#include "model/decoder_backend.h"
#include "model/families/names.h"
#include "model/pass_layout.h"
#include "model/weights.h"

#include <algorithm>

namespace entrodraft::model {

dist::Slice vocab_slice(const ModelConfig& config, int tp_rank, int tp_size) {
    return shard_of(config, tp_rank, tp_size).vocab;
}

namespace {

struct CpuDecoder final : DecoderBackend {
    DecoderOptions options;
    dist::Communicator* tp = nullptr;
    ThreadTeam* team = nullptr;
    const kernels::Kernels* kernels = nullptr;

    ModelWeights weights;
    Attention attention;

    // Activations, [kMaxRows][...] each; normed and scratch are per thread.
    Buffer x;        // the residual stream
    Buffer normed;   // [threads][kMaxRows][hidden]
    Buffer embedded; // of a narrower embedding: before project_in, and after project_out
    Buffer qkv, attended, gate, up, delta, logits;
    Buffer scratch;
    std::size_t scratch_floats = 0; // of a thread
    std::vector<float> hidden;
    std::vector<kernels::LaneStats> lane_stats;     // [threads][kMaxRows]
    std::vector<kernels::LogitStats> summary_parts; // [threads][kMaxRows]
    std::vector<kernels::LogitStats> summaries;     // [logit_rows]

    PassLayout layout; // the pass at hand

    CpuDecoder(const Checkpoint& checkpoint, const ModelConfig& model_config, const DecoderOptions& decoder_options,
               dist::Communicator& tp_ranks, ThreadTeam& threads)
        : CpuDecoder(checkpoint, model_config, shard_of(model_config, tp_ranks.rank(), tp_ranks.size()),
                     decoder_options, tp_ranks, threads) {}
    CpuDecoder(const Checkpoint& checkpoint, const ModelConfig& model_config, const RankShard& held,
               const DecoderOptions& decoder_options, dist::Communicator& tp_ranks, ThreadTeam& threads)
        : DecoderBackend(model_config, held,
                         KvCache({model_config.n_layers, held.n_kv_heads(), model_config.head_dim,
                                  decoder_options.n_slots, decoder_options.capacity}),
                         decoder_options.capacity),
          options(decoder_options), tp(&tp_ranks), team(&threads),
          kernels(options.kernels ? options.kernels : &kernels::best_kernels()),
          weights(checkpoint, config, shard, options.weight_type, threads, options.progress),
          attention(config, shard, cache, threads.size()) {
        options.progress = nullptr; // its owner need not outlive the loading
        make_buffers();
    }

    std::size_t weight_bytes() const override { return weights.bytes_per_pass(); }
    double operations_per_row() const override { return weights.operations_per_row(); }
    PassResult forward(const Pass& pass) override;

    int rows() const { return layout.rows(); }
    float* scratch_of(int thread) { return scratch.as<float>() + index(thread) * scratch_floats; }
    // Of a row of x: what is added to it comes in whole units of 16 outputs.
    std::size_t x_stride() const {
        return index((config.hidden_size + kernels::kLanes - 1) / kernels::kLanes * kernels::kLanes);
    }
    std::size_t embedded_stride() const {
        return index((config.embedding_size + kernels::kLanes - 1) / kernels::kLanes * kernels::kLanes);
    }
    std::size_t width() const { return index(config.hidden_size); } // of a row of normed
    float* normed_of(int thread) { return normed.as<float>() + index(thread) * kMaxRows * width(); }
    bool has_projections() const { return config.embedding_size != config.hidden_size; }

    void make_buffers();
    void embed(const PassContext& context);
    void run_layer(const PassContext& context, int layer_index);
    void apply_norm(const NormWeights& norm, const float* from, float* to) const;
    const float* norm_rows(const PassContext& context, const NormWeights& norm);
    void norm_in_place(const PassContext& context, const NormWeights& norm);
    void add_normed_delta(const PassContext& context, const NormWeights& norm);
    void attend(const PassContext& context, int layer_index);
    void widen(const PassContext& context, const LayerWeights& layer, const float* from, std::size_t stride);
    const float* inner() const { return (config.gated_mlp ? gate : up).as<float>(); } // what widen has made
    void project_logits(const PassContext& context);
    void multiply_head(const PassContext& context, const float* from, std::size_t from_stride);
    void summarize(const PassContext& context);
    int counted_outputs() const; // of this rank's slice, those that count in summaries
    // Whether the head's multiplication keeps up the sums for the entropy: only of logits that stay as they are.
    bool sums_on_the_way() const {
        return layout.pass.needs.summary == LogitSummary::entropy && weights.head_bias.empty() &&
               config.logit_soft_cap == 0;
    }
    void merge_summaries();
    void keep_hidden(const PassContext& context, int layers_done);
};

} // namespace

// ---- construction ----

void CpuDecoder::make_buffers() {
    const std::size_t row = kMaxRows * sizeof(float);
    const LayerWeights& layer = weights.layers[0];
    lane_stats.resize(index(team->size()) * kMaxRows);
    summary_parts.resize(index(team->size()) * kMaxRows);
    x = Buffer(row * x_stride());
    normed = Buffer(row * width() * index(team->size()));
    qkv = Buffer(row * layer.qkv.y_stride());
    attended = Buffer(row * index(shard.n_query_heads() * config.head_dim));
    up = Buffer(row * layer.up.y_stride());
    if (config.gated_mlp) gate = Buffer(row * layer.gate.y_stride());
    if (config.block == Block::sandwich) delta = Buffer(row * x_stride());
    if (has_projections()) embedded = Buffer(row * embedded_stride());
    logits = Buffer(row * index(weights.head().n_padded()));
    const int widest =
        std::max({config.hidden_size, config.embedding_size, layer.output.matrix().k(), layer.down.matrix().k()});
    scratch_floats = kernels::linear_scratch_floats(kMaxRows, widest);
    scratch = Buffer(index(team->size()) * scratch_floats * sizeof(float));
}

Decoder::Decoder(std::unique_ptr<DecoderBackend> backend) : backend_(std::move(backend)) {}
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

Decoder Decoder::load(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                      dist::Communicator& tp, ThreadTeam& team) {
    if (options.weight_type == WeightType::float8)
        throw std::invalid_argument("float8 weights are for GPUs; CPUs have int8");
    ModelConfig own = config;
    untie_stored_head(own, checkpoint);
    check_shapes(own, checkpoint);
    DecoderOptions filled = options;
    if (filled.capacity == 0) filled.capacity = config.max_positions;
    return Decoder(std::make_unique<CpuDecoder>(checkpoint, own, filled, tp, team));
}

const ModelConfig& Decoder::config() const {
    return backend_->config;
}
KvCache& Decoder::cache() {
    return backend_->cache;
}
dist::Slice Decoder::local_vocab() const {
    return backend_->shard.vocab;
}
std::size_t Decoder::weight_bytes() const {
    return backend_->weight_bytes();
}
double Decoder::operations_per_row() const {
    return backend_->operations_per_row();
}

bool Decoder::has_device_draft_loop() const {
    return backend_->has_device_draft_loop();
}
bool Decoder::keeps_logits_on_device() const {
    return backend_->keeps_logits_on_device();
}

PassResult Decoder::forward(const Pass& pass) {
    return backend_->forward(pass);
}

// ---- the pass ----

PassResult CpuDecoder::forward(const Pass& pass) {
    layout.set(pass, config, cache);
    attention.cover(layout.last_position);
    hidden.resize(pass.hidden_layers.size() * pass.rows.size() * width());
    std::exception_ptr failure;
    const auto deadline = dist::Deadline::after_seconds(options.timeout_seconds);
    team->run([&](int thread) {
        const PassContext context = {kernels, team, tp, deadline, thread, scratch_of(thread), &failure};
        embed(context);
        keep_hidden(context, 0);
        for (int i = 0; i < config.n_layers; ++i) {
            run_layer(context, i);
            keep_hidden(context, i + 1);
        }
        project_logits(context);
    });
    if (failure) std::rethrow_exception(failure);
    for (const Segment& segment : layout.segments)
        cache.append(segment.slot, segment.end - segment.begin);
    const std::size_t stride = index(weights.head().n_padded());
    merge_summaries();
    return {{logits.as<float>(), pass.logit_rows.size() * stride}, stride, summaries, {}, hidden};
}

// x[r] = the token's embedding, scaled, widened, with its position's added, as the family has it.
void CpuDecoder::embed(const PassContext& context) {
    float* looked_up = has_projections() ? embedded.as<float>() : x.as<float>();
    weights.embedding.look_up(context, layout.tokens, looked_up, has_projections() ? embedded_stride() : x_stride());
    if (!has_projections() && weights.positions.empty() && config.embedding_scale == 1) return;
    if (has_projections()) weights.project_in.apply(context, looked_up, embedded_stride(), rows(), x.as<float>());
    const dist::Slice mine = dist::even_slice(config.hidden_size, context.thread, team->size(), kernels::kLanes);
    for (int r = 0; r < rows(); ++r) {
        float* row = x.as<float>() + index(r) * x_stride();
        const int place = layout.pass.rows[index(r)].position + config.position_offset;
        const float* position = weights.positions.empty() ? nullptr : &weights.positions[index(place) * width()];
        for (std::int64_t i = mine.begin; i < mine.end; ++i)
            row[i] = row[i] * config.embedding_scale + (position ? position[i] : 0.0f);
    }
    context.barrier();
}

void CpuDecoder::run_layer(const PassContext& context, int layer_index) {
    const LayerWeights& layer = weights.layers[index(layer_index)];
    const std::size_t attended_stride = index(shard.n_query_heads() * config.head_dim),
                      inner_stride = layer.up.y_stride();
    float* stream = x.as<float>();
    switch (config.block) {
    case Block::pre_norm:
        layer.qkv.apply(context, norm_rows(context, layer.attention_norm), width(), rows(), qkv.as<float>());
        attend(context, layer_index);
        layer.output.add_to(context, attended.as<float>(), attended_stride, rows(), stream, x_stride());
        widen(context, layer, norm_rows(context, layer.mlp_norm), width());
        context.barrier();
        layer.down.add_to(context, inner(), inner_stride, rows(), stream, x_stride());
        return;
    case Block::parallel: {
        const float* from = norm_rows(context, layer.attention_norm);
        layer.qkv.apply(context, from, width(), rows(), qkv.as<float>());
        if (!config.shared_norm) from = norm_rows(context, layer.mlp_norm);
        widen(context, layer, from, width());
        attend(context, layer_index);
        layer.output.apply(context, attended.as<float>(), attended_stride, rows(), stream, x_stride(),
                           context.carries_residual());
        layer.down.apply(context, inner(), inner_stride, rows(), stream, x_stride(), true);
        context.all_reduce(stream, index(rows()) * x_stride());
        return;
    }
    case Block::post_norm:
        layer.qkv.apply(context, stream, x_stride(), rows(), qkv.as<float>());
        attend(context, layer_index);
        layer.output.add_to(context, attended.as<float>(), attended_stride, rows(), stream, x_stride());
        norm_in_place(context, layer.attention_norm);
        widen(context, layer, stream, x_stride());
        context.barrier();
        layer.down.add_to(context, inner(), inner_stride, rows(), stream, x_stride());
        norm_in_place(context, layer.mlp_norm);
        return;
    case Block::sandwich:
        layer.qkv.apply(context, norm_rows(context, layer.attention_norm), width(), rows(), qkv.as<float>());
        attend(context, layer_index);
        layer.output.apply(context, attended.as<float>(), attended_stride, rows(), delta.as<float>(), x_stride(),
                           false);
        context.all_reduce(delta.as<float>(), index(rows()) * x_stride());
        add_normed_delta(context, layer.after_attention_norm);
        widen(context, layer, norm_rows(context, layer.mlp_norm), width());
        context.barrier();
        layer.down.apply(context, inner(), inner_stride, rows(), delta.as<float>(), x_stride(), false);
        context.all_reduce(delta.as<float>(), index(rows()) * x_stride());
        add_normed_delta(context, layer.after_mlp_norm);
        return;
    }
}

void CpuDecoder::keep_hidden(const PassContext& context, int layers_done) {
    if (context.thread != 0) return;
    const Pass& pass = layout.pass;
    for (std::size_t i = 0; i < pass.hidden_layers.size(); ++i)
        for (std::size_t row = 0; row < pass.rows.size() && pass.hidden_layers[i] == layers_done; ++row)
            std::copy_n(x.as<float>() + row * x_stride(), width(),
                        hidden.data() + (i * pass.rows.size() + row) * width());
}

// ---- norms ----

void CpuDecoder::apply_norm(const NormWeights& norm, const float* from, float* to) const {
    if (config.norm == Norm::rms)
        kernels->rms_norm(from, norm.weight.data(), config.hidden_size, config.norm_epsilon, to);
    else
        kernels->layer_norm(from, norm.weight.data(), norm.bias.data(), config.hidden_size, config.norm_epsilon, to);
}

// Every thread norms all rows into its own memory: cheaper than meeting at a barrier.
const float* CpuDecoder::norm_rows(const PassContext& context, const NormWeights& norm) {
    float* to = normed_of(context.thread);
    for (int r = 0; r < rows(); ++r)
        apply_norm(norm, x.as<float>() + index(r) * x_stride(), to + index(r) * width());
    return to;
}

// x = norm(x), each row by one thread; a barrier follows.
void CpuDecoder::norm_in_place(const PassContext& context, const NormWeights& norm) {
    const dist::Slice mine = dist::even_slice(rows(), context.thread, team->size());
    for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
        float* row = x.as<float>() + index(r) * x_stride();
        apply_norm(norm, row, row);
    }
    context.barrier();
}

// x += norm(delta), each row by one thread; a barrier follows.
void CpuDecoder::add_normed_delta(const PassContext& context, const NormWeights& norm) {
    const dist::Slice mine = dist::even_slice(rows(), context.thread, team->size());
    float* to = normed_of(context.thread);
    for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
        float* row = x.as<float>() + index(r) * x_stride();
        apply_norm(norm, delta.as<float>() + index(r) * x_stride(), to);
        for (std::size_t i = 0; i < width(); ++i)
            row[i] += to[i];
    }
    context.barrier();
}

// ---- the two halves of a layer ----

// From qkv, which this thread has made its outputs of, to attended; barriers before and behind.
void CpuDecoder::attend(const PassContext& context, int layer_index) {
    const LayerWeights& layer = weights.layers[index(layer_index)];
    context.barrier();
    attention.run(context, {&layout, &layer, layer_index, qkv.as<float>(), layer.qkv.y_stride(), attended.as<float>()});
    context.barrier();
}

// inner[r][own outputs] = activation(up) or activation(gate) * up. No barrier.
void CpuDecoder::widen(const PassContext& context, const LayerWeights& layer, const float* from, std::size_t stride) {
    if (config.gated_mlp) layer.gate.apply(context, from, stride, rows(), gate.as<float>());
    layer.up.apply(context, from, stride, rows(), up.as<float>());
    const dist::Slice mine = layer.up.matrix().outputs_of(context.thread);
    for (int r = 0; r < rows(); ++r) {
        const std::size_t at = index(r) * layer.up.y_stride() + static_cast<std::size_t>(mine.begin);
        float* wide = up.as<float>() + at;
        if (config.gated_mlp)
            kernels->activate(config.activation, gate.as<float>() + at, wide, static_cast<int>(mine.size()));
        else
            kernels->activate(config.activation, wide, nullptr, static_cast<int>(mine.size()));
    }
}

// ---- logits ----

void CpuDecoder::project_logits(const PassContext& context) {
    const Pass& pass = layout.pass;
    if (pass.logit_rows.empty()) return;
    float* to = normed_of(context.thread);
    for (std::size_t i = 0; i < pass.logit_rows.size(); ++i) {
        const float* from = x.as<float>() + index(pass.logit_rows[i]) * x_stride();
        if (config.final_norm)
            apply_norm(weights.final_norm, from, to + i * width());
        else
            std::copy_n(from, width(), to + i * width());
    }
    if (!has_projections()) {
        multiply_head(context, to, width());
    } else {
        weights.project_out.apply(context, to, width(), static_cast<int>(pass.logit_rows.size()), embedded.as<float>());
        context.barrier();
        multiply_head(context, embedded.as<float>(), embedded_stride());
    }
    if (pass.needs.summary != LogitSummary::none) summarize(context);
}

int CpuDecoder::counted_outputs() const {
    const int known = layout.pass.summary_vocab > 0 ? layout.pass.summary_vocab : config.vocab_size;
    return static_cast<int>(std::clamp<std::int64_t>(known - shard.vocab.begin, 0, shard.vocab.size()));
}

// This thread's outputs of the logits, with what the family does to them.
void CpuDecoder::multiply_head(const PassContext& context, const float* from, std::size_t from_stride) {
    const PackedMatrix& matrix = weights.head();
    const int n_rows = static_cast<int>(layout.pass.logit_rows.size());
    const std::size_t stride = index(matrix.n_padded());
    float* to = logits.as<float>();
    if (sums_on_the_way()) {
        matrix.multiply_logits(*kernels, context.thread, from, from_stride, n_rows, to, stride, context.scratch,
                               lane_stats.data() + index(context.thread) * kMaxRows, counted_outputs());
        return;
    }
    matrix.multiply(*kernels, context.thread, from, from_stride, n_rows, to, stride, false, context.scratch);
    const dist::Slice mine = matrix.outputs_of(context.thread);
    for (int r = 0; r < n_rows; ++r) {
        float* row = to + index(r) * stride;
        for (std::int64_t i = mine.begin; i < mine.end && !weights.head_bias.empty(); ++i)
            row[i] += weights.head_bias[static_cast<std::size_t>(i)];
        if (config.logit_soft_cap > 0)
            kernels->soft_cap(row + mine.begin, config.logit_soft_cap, static_cast<int>(mine.size()));
    }
}

// What this thread's outputs say of each row.
void CpuDecoder::summarize(const PassContext& context) {
    const PackedMatrix& matrix = weights.head();
    const std::size_t stride = index(matrix.n_padded());
    const int first = static_cast<int>(shard.vocab.begin); // token id of this rank's first output
    const dist::Slice mine = matrix.outputs_of(context.thread);
    const int begin = static_cast<int>(mine.begin);
    const int n = std::clamp(counted_outputs() - begin, 0, static_cast<int>(mine.size()));
    for (std::size_t r = 0; r < layout.pass.logit_rows.size(); ++r) {
        const float* row = logits.as<float>() + r * stride + begin;
        kernels::LogitStats& part = summary_parts[index(context.thread) * kMaxRows + r];
        part = {};
        if (n == 0) continue;
        if (layout.pass.needs.summary == LogitSummary::max)
            part = kernels->logit_max(row, n, first + begin);
        else if (sums_on_the_way())
            part = kernels->finish_stats(lane_stats[index(context.thread) * kMaxRows + r], row, n, first + begin);
        else
            part = kernels->logit_stats(row, n, first + begin);
    }
}

// Puts the threads' parts of each row together.
void CpuDecoder::merge_summaries() {
    summaries.clear();
    if (layout.pass.needs.summary == LogitSummary::none) return;
    for (std::size_t r = 0; r < layout.pass.logit_rows.size(); ++r) {
        kernels::LogitStats whole = summary_parts[r];
        for (int thread = 1; thread < team->size(); ++thread) {
            const kernels::LogitStats& part = summary_parts[index(thread) * kMaxRows + r];
            if (part.arg_max >= 0) whole = whole.arg_max >= 0 ? merge(whole, part) : part;
        }
        summaries.push_back(whole);
    }
}

} // namespace entrodraft::model
