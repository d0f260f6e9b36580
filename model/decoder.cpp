// The one forward pass: Llama's block (pre-norm, grouped-query attention with rotary positions, gated MLP) over
// this rank's heads and this rank's slice of the MLP. Every thread walks the whole pass; what they share out is
// outputs, heads and rows, and they meet at barriers.
#include "entrodraft/model/decoder.h"

#include "entrodraft/model/bad_file.h"
#include "entrodraft/model/families/names.h"
#include "entrodraft/model/parallel_linear.h"
#include "entrodraft/model/rotary.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace entrodraft::model {

namespace {

constexpr int kMostRows = 128; // of a pass; a chunk of a long prompt

std::size_t index(int value) {
    return static_cast<std::size_t>(value);
}

struct Layer {
    std::vector<float> input_norm; // [hidden]
    ColumnLinear qkv;              // own query heads, then own key heads, then own value heads
    RowLinear attention_output;
    std::vector<float> post_attention_norm; // [hidden]
    ColumnLinear gate;
    ColumnLinear up;
    RowLinear down;
};

// Rows that extend one slot: [begin, end) of the pass, behind `cached` positions.
struct Segment {
    int slot = 0;
    int begin = 0;
    int end = 0;
    int cached = 0;
};

std::vector<float> read_vector(const Checkpoint& checkpoint, const std::string& name, int length) {
    std::vector<float> values(index(length));
    read_floats(checkpoint.tensor(name), {0, length}, values.data());
    return values;
}

} // namespace

dist::Slice vocab_slice(const ModelConfig& config, int tp_rank, int tp_size) {
    constexpr int kUnit = 64;
    return dist::even_slice(config.vocab_size, tp_rank, tp_size, kUnit);
}

struct Decoder::Impl {
    ModelConfig config;
    DecoderOptions options;
    dist::Communicator* tp = nullptr;
    ThreadTeam* team = nullptr;
    const kernels::Kernels* kernels = nullptr;

    dist::HeadShard heads;
    WeightArena arena;
    VocabEmbedding embedding;
    std::vector<Layer> layers;
    std::vector<float> final_norm;
    ColumnLinear head; // empty where the embedding's table serves as head
    KvCache cache;
    RotaryTable rotary;
    std::size_t bytes_per_pass = 0;
    double operations = 0;

    // Activations, [kMostRows][...] each; normed, scores and scratch are per thread.
    Buffer x, qkv, attended, gate, up, normed, scores, scratch, logits;
    std::size_t scratch_floats = 0; // of a thread
    std::vector<float> hidden;
    std::vector<kernels::LaneStats> lane_stats;     // [threads][kMostRows]
    std::vector<kernels::LogitStats> summary_parts; // [threads][kMostRows]
    std::vector<kernels::LogitStats> summaries;     // [logit_rows]

    // The pass at hand.
    Pass pass;
    std::vector<Segment> segments;
    std::vector<TokenId> tokens;
    std::vector<std::uint64_t> ancestors; // [rows][kMostRows / 64], by_parent only

    Impl(const ModelConfig& model_config, const DecoderOptions& decoder_options, dist::Communicator& tp_ranks,
         ThreadTeam& threads)
        : config(model_config), options(decoder_options), tp(&tp_ranks), team(&threads),
          kernels(options.kernels ? options.kernels : &kernels::best_kernels()),
          heads(dist::head_shard(config.n_heads, config.n_kv_heads, tp->rank(), tp->size())), arena(team->size()),
          cache({config.n_layers, static_cast<int>(heads.kv_heads.size()), config.head_dim, options.n_slots,
                 options.capacity}),
          rotary(config.head_dim, config.rope.theta) {}

    int n_query_heads() const { return static_cast<int>(heads.query_heads.size()); }
    int n_kv_heads() const { return static_cast<int>(heads.kv_heads.size()); }
    int group() const { return n_query_heads() / n_kv_heads(); }
    dist::Slice mlp_slice() const { // this rank's part of the MLP's width
        return dist::even_slice(config.intermediate_size, tp->rank(), tp->size(), kernels::kLanes);
    }
    int rows() const { return static_cast<int>(pass.rows.size()); }
    float* scratch_of(int thread) { return scratch.as<float>() + index(thread) * scratch_floats; }
    // Of a row of x: what is added to it comes in whole units of 16 outputs.
    std::size_t x_stride() const {
        return index((config.hidden_size + kernels::kLanes - 1) / kernels::kLanes * kernels::kLanes);
    }
    float* normed_of(int thread) { return normed.as<float>() + index(thread) * kMostRows * index(config.hidden_size); }

    void make_layers();
    void load_weights(const Checkpoint& checkpoint);
    void make_buffers();
    void prepare(const Pass& next);
    void norm_rows(const PassContext& context, const std::vector<float>& weight, const float* from, int n_rows) const;
    void attention(const PassContext& context, int layer_index);
    void rotate_and_store(int layer_index, int row, const Segment& segment, int kv_head);
    void attend(const PassContext& context, int layer_index);
    void attend_task(const PassContext& context, int layer_index, const Segment& segment, int kv_head, int first,
                     int count);
    void mlp(const PassContext& context, const Layer& layer);
    void project_logits(const PassContext& context);
    void merge_summaries();
    void keep_hidden(const PassContext& context, int layers_done);
};

// ---- construction ----

void Decoder::Impl::make_layers() {
    const int threads = team->size(), hidden_size = config.hidden_size, dim = config.head_dim;
    const WeightType type = options.weight_type;
    const int mlp_width = static_cast<int>(mlp_slice().size());
    const dist::Slice vocab = vocab_slice(config, tp->rank(), tp->size());
    layers.resize(index(config.n_layers));
    for (Layer& layer : layers) {
        layer.qkv = ColumnLinear((n_query_heads() + 2 * n_kv_heads()) * dim, hidden_size, type, threads);
        layer.attention_output = RowLinear(hidden_size, n_query_heads() * dim, type, threads);
        layer.gate = ColumnLinear(mlp_width, hidden_size, type, threads);
        layer.up = ColumnLinear(mlp_width, hidden_size, type, threads);
        layer.down = RowLinear(hidden_size, mlp_width, type, threads);
        for (PackedMatrix* matrix : {&layer.qkv.matrix(), &layer.attention_output.matrix(), &layer.gate.matrix(),
                                     &layer.up.matrix(), &layer.down.matrix()}) {
            arena.place(*matrix);
            bytes_per_pass += matrix->bytes();
            operations += 2.0 * matrix->n() * matrix->k();
        }
    }
    embedding = VocabEmbedding(vocab, hidden_size, type, threads);
    arena.place(embedding.table());
    if (!config.tied_embeddings) {
        head = ColumnLinear(static_cast<int>(vocab.size()), hidden_size, type, threads);
        arena.place(head.matrix());
    }
    bytes_per_pass += embedding.table().bytes(); // the head's, tied or not
    operations += 2.0 * static_cast<double>(vocab.size()) * hidden_size;
    arena.allocate();
}

void Decoder::Impl::load_weights(const Checkpoint& checkpoint) {
    const int dim = config.head_dim;
    const ModelNames names = names_of(config, checkpoint);
    const dist::Slice all_hidden = {0, config.hidden_size};
    const dist::Slice query = {heads.query_heads.begin * dim, heads.query_heads.end * dim};
    const dist::Slice kv = {heads.kv_heads.begin * dim, heads.kv_heads.end * dim};
    const dist::Slice wide = mlp_slice();

    final_norm = read_vector(checkpoint, names.final_norm.weight, config.hidden_size);
    for (int i = 0; i < config.n_layers; ++i) {
        const LayerNames layer = names.layer(i);
        layers[index(i)].input_norm = read_vector(checkpoint, layer.attention_norm.weight, config.hidden_size);
        layers[index(i)].post_attention_norm = read_vector(checkpoint, layer.mlp_norm.weight, config.hidden_size);
    }
    auto load = [&](PackedMatrix& matrix, int thread, std::initializer_list<MatrixPart> parts) {
        matrix.load({parts.begin(), parts.size()}, thread);
    };
    auto load_thread = [&](int thread) {
        load(embedding.table(), thread, {{&checkpoint.tensor(names.embedding.weight), embedding.vocab(), all_hidden}});
        if (!config.tied_embeddings)
            load(head.matrix(), thread, {{&checkpoint.tensor(names.head.weight), embedding.vocab(), all_hidden}});
        for (int i = 0; i < config.n_layers; ++i) {
            const LayerNames layer = names.layer(i);
            Layer& to = layers[index(i)];
            load(to.qkv.matrix(), thread,
                 {{&checkpoint.tensor(layer.query.weight), query, all_hidden},
                  {&checkpoint.tensor(layer.key.weight), kv, all_hidden},
                  {&checkpoint.tensor(layer.value.weight), kv, all_hidden}});
            load(to.attention_output.matrix(), thread, {{&checkpoint.tensor(layer.output.weight), all_hidden, query}});
            load(to.gate.matrix(), thread, {{&checkpoint.tensor(layer.gate.weight), wide, all_hidden}});
            load(to.up.matrix(), thread, {{&checkpoint.tensor(layer.up.weight), wide, all_hidden}});
            load(to.down.matrix(), thread, {{&checkpoint.tensor(layer.down.weight), all_hidden, wide}});
        }
    };
    std::vector<std::exception_ptr> failures(index(team->size()));
    team->run([&](int thread) { // each thread packs what it will read: its pages lie near its core
        try {
            load_thread(thread);
        } catch (...) {
            failures[index(thread)] = std::current_exception();
        }
    });
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

void Decoder::Impl::make_buffers() {
    lane_stats.resize(index(team->size()) * kMostRows);
    summary_parts.resize(index(team->size()) * kMostRows);
    const std::size_t row = kMostRows * sizeof(float);
    x = Buffer(row * x_stride());
    normed = Buffer(row * index(config.hidden_size) * index(team->size()));
    qkv = Buffer(row * layers[0].qkv.y_stride());
    attended = Buffer(row * index(n_query_heads() * config.head_dim));
    gate = Buffer(row * layers[0].gate.y_stride());
    up = Buffer(row * layers[0].up.y_stride());
    logits = Buffer(row * index(embedding.table().n_padded()));
    const int widest =
        std::max({config.hidden_size, layers[0].attention_output.matrix().k(), layers[0].down.matrix().k()});
    scratch_floats = kernels::linear_scratch_floats(kMostRows, widest);
    scratch = Buffer(index(team->size()) * scratch_floats * sizeof(float));
    scores = Buffer(index(team->size()) * kernels::kMostQueries * index(cache.shape().capacity) * sizeof(float));
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

Decoder Decoder::load(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                      dist::Communicator& tp, ThreadTeam& team) {
    if (config.activation != Activation::silu || config.family != Family::llama)
        throw std::invalid_argument("this decoder computes the silu activation only");
    check_shapes(config, checkpoint);
    DecoderOptions filled = options;
    if (filled.capacity == 0) filled.capacity = config.max_positions;
    auto impl = std::make_unique<Impl>(config, filled, tp, team);
    impl->make_layers();
    impl->load_weights(checkpoint);
    impl->make_buffers();
    return Decoder(std::move(impl));
}

const ModelConfig& Decoder::config() const {
    return impl_->config;
}
KvCache& Decoder::cache() {
    return impl_->cache;
}
dist::Slice Decoder::local_vocab() const {
    return impl_->embedding.vocab();
}
std::size_t Decoder::weight_bytes() const {
    return impl_->bytes_per_pass;
}
double Decoder::operations_per_row() const {
    return impl_->operations;
}
int Decoder::most_rows() const {
    return kMostRows;
}

// ---- the pass ----

PassResult Decoder::forward(const Pass& pass) {
    Impl& d = *impl_;
    d.prepare(pass);
    std::exception_ptr failure;
    const auto deadline = dist::Deadline::after_seconds(d.options.timeout_seconds);
    d.team->run([&](int thread) {
        const PassContext context = {d.kernels, d.team, d.tp, deadline, thread, d.scratch_of(thread), &failure};
        d.embedding.look_up(context, d.tokens, d.x.as<float>(), d.x_stride());
        d.keep_hidden(context, 0);
        for (int i = 0; i < d.config.n_layers; ++i) {
            d.attention(context, i);
            d.mlp(context, d.layers[index(i)]);
            d.keep_hidden(context, i + 1);
        }
        d.project_logits(context);
    });
    if (failure) std::rethrow_exception(failure);
    for (const Segment& segment : d.segments)
        d.cache.append(segment.slot, segment.end - segment.begin);
    const std::size_t stride = index(d.embedding.table().n_padded());
    d.merge_summaries();
    return {{d.logits.as<float>(), pass.logit_rows.size() * stride}, stride, d.summaries, d.hidden};
}

// Checks the rows against the contract and lays out what the threads will share.
void Decoder::Impl::prepare(const Pass& next) {
    pass = next;
    if (pass.rows.empty() || rows() > kMostRows)
        throw std::invalid_argument("a pass takes 1 to " + std::to_string(kMostRows) + " rows, not " +
                                    std::to_string(rows()));
    segments.clear();
    tokens.clear();
    int last_position = 0;
    for (int r = 0; r < rows(); ++r) {
        const Row& row = pass.rows[index(r)];
        if (row.token < 0 || row.token >= config.vocab_size)
            throw std::invalid_argument("token id " + std::to_string(row.token) + " is outside the vocabulary of " +
                                        std::to_string(config.vocab_size));
        if (row.slot < 0 || row.slot >= options.n_slots)
            throw std::invalid_argument("no cache slot " + std::to_string(row.slot));
        if (row.position < 0 || row.position >= config.max_positions)
            throw std::invalid_argument("position " + std::to_string(row.position) + " is outside the context of " +
                                        std::to_string(config.max_positions));
        if (row.parent >= r || (row.parent >= 0 && pass.rows[index(row.parent)].slot != row.slot))
            throw std::invalid_argument("a row's parent must stand before it in the same sequence");
        if (segments.empty() || segments.back().slot != row.slot) {
            if (std::any_of(segments.begin(), segments.end(), [&](const Segment& s) { return s.slot == row.slot; }))
                throw std::invalid_argument("rows of slot " + std::to_string(row.slot) + " do not stand together");
            segments.push_back({row.slot, r, r, cache.length(row.slot)});
        }
        segments.back().end = r + 1;
        last_position = std::max(last_position, row.position);
        tokens.push_back(row.token);
    }
    for (const Segment& segment : segments)
        if (segment.cached + segment.end - segment.begin > cache.shape().capacity)
            throw std::invalid_argument("the cache holds " + std::to_string(cache.shape().capacity) + " positions");
    if (pass.mask == Mask::window && pass.window < 1)
        throw std::invalid_argument("a window holds at least the row itself, not " + std::to_string(pass.window) +
                                    " positions");
    if (pass.logit_rows.size() > pass.rows.size())
        throw std::invalid_argument("more rows need logits than the pass has");
    for (const int row : pass.logit_rows)
        if (row < 0 || row >= rows())
            throw std::invalid_argument("row " + std::to_string(row) + " needs logits; the pass has " +
                                        std::to_string(rows()) + " rows");
    for (const int layer : pass.hidden_layers)
        if (layer < 0 || layer > config.n_layers)
            throw std::invalid_argument("no hidden states after layer " + std::to_string(layer) + " of " +
                                        std::to_string(config.n_layers));
    rotary.cover(last_position);
    hidden.resize(pass.hidden_layers.size() * pass.rows.size() * index(config.hidden_size));
    if (pass.mask != Mask::by_parent) return;
    constexpr std::size_t kWords = kMostRows / 64;
    ancestors.assign(pass.rows.size() * kWords, 0);
    for (const Segment& segment : segments) {
        for (int r = segment.begin; r < segment.end; ++r) {
            std::uint64_t* mine = &ancestors[index(r) * kWords];
            const int parent = pass.rows[index(r)].parent;
            if (parent >= 0) std::copy_n(&ancestors[index(parent) * kWords], kWords, mine);
            const int bit = r - segment.begin;
            mine[bit / 64] |= std::uint64_t{1} << (bit % 64);
        }
    }
}

void Decoder::Impl::keep_hidden(const PassContext& context, int layers_done) {
    if (context.thread != 0) return;
    const std::size_t width = index(config.hidden_size);
    for (std::size_t i = 0; i < pass.hidden_layers.size(); ++i)
        for (std::size_t row = 0; row < pass.rows.size() && pass.hidden_layers[i] == layers_done; ++row)
            std::copy_n(x.as<float>() + row * x_stride(), width, hidden.data() + (i * pass.rows.size() + row) * width);
}

// Every thread norms all rows into its own memory: cheaper than meeting at a barrier.
void Decoder::Impl::norm_rows(const PassContext& context, const std::vector<float>& weight, const float* from,
                              int n_rows) const {
    const std::size_t width = index(config.hidden_size);
    float* to = const_cast<Impl*>(this)->normed_of(context.thread);
    for (int r = 0; r < n_rows; ++r)
        kernels->rms_norm(from + index(r) * x_stride(), weight.data(), config.hidden_size, config.norm_epsilon,
                          to + index(r) * width);
}

void Decoder::Impl::attention(const PassContext& context, int layer_index) {
    const Layer& layer = layers[index(layer_index)];
    const std::size_t width = index(config.hidden_size);
    norm_rows(context, layer.input_norm, x.as<float>(), rows());
    layer.qkv.apply(context, normed_of(context.thread), width, rows(), qkv.as<float>());
    context.barrier();
    attend(context, layer_index);
    context.barrier();
    layer.attention_output.add_to(context, attended.as<float>(), index(n_query_heads() * config.head_dim), rows(),
                                  x.as<float>(), x_stride());
}

// Rotates the key head and its query heads of one row, and puts key and value into the cache.
void Decoder::Impl::rotate_and_store(int layer_index, int row, const Segment& segment, int kv_head) {
    const int dim = config.head_dim, half = dim / 2;
    float* base = qkv.as<float>() + index(row) * layers[index(layer_index)].qkv.y_stride();
    const float* cosines = rotary.cosines(pass.rows[index(row)].position);
    const float* sines = rotary.sines(pass.rows[index(row)].position);
    for (int g = 0; g < group(); ++g)
        kernels->rotate_half(base + (kv_head * group() + g) * dim, cosines, sines, half);
    float* key = base + (n_query_heads() + kv_head) * dim;
    const float* value = base + (n_query_heads() + n_kv_heads() + kv_head) * dim;
    kernels->rotate_half(key, cosines, sines, half);
    const int at = segment.cached + row - segment.begin;
    float* keys = cache.keys(layer_index, segment.slot, kv_head) +
                  index(at / KvCache::kBlock) * index(dim) * KvCache::kBlock + at % KvCache::kBlock;
    for (int d = 0; d < dim; ++d)
        keys[d * KvCache::kBlock] = key[d];
    std::copy_n(value, dim, cache.values(layer_index, segment.slot, kv_head) + index(at) * index(dim));
}

// Shares out (segment, key head, chunk of queries) over the threads. Where key heads divide by threads, each
// thread stores the keys that it alone will read, and no barrier is needed between storing and reading.
void Decoder::Impl::attend(const PassContext& context, int layer_index) {
    const int threads = team->size();
    const bool own_heads = n_kv_heads() % threads == 0;
    const dist::Slice my_heads = dist::even_slice(n_kv_heads(), context.thread, threads);
    const dist::Slice my_rows = dist::even_slice(rows(), context.thread, threads);
    for (const Segment& segment : segments) {
        for (int r = segment.begin; r < segment.end; ++r) {
            if (!own_heads && !my_rows.contains(r)) continue;
            for (int h = 0; h < n_kv_heads(); ++h)
                if (!own_heads || my_heads.contains(h)) rotate_and_store(layer_index, r, segment, h);
        }
    }
    if (!own_heads) context.barrier();
    for (const Segment& segment : segments) {
        const int queries = (segment.end - segment.begin) * group();
        const int share = (queries * n_kv_heads() + threads - 1) / threads;
        const int chunk = std::clamp(own_heads ? queries : share, 1, kernels::kMostQueries);
        const int chunks = (queries + chunk - 1) / chunk;
        const dist::Slice tasks = own_heads ? dist::Slice{my_heads.begin * chunks, my_heads.end * chunks}
                                            : dist::even_slice(n_kv_heads() * chunks, context.thread, threads);
        for (auto task = static_cast<int>(tasks.begin); task < tasks.end; ++task) {
            const int first = task % chunks * chunk;
            attend_task(context, layer_index, segment, task / chunks, first, std::min(chunk, queries - first));
        }
    }
}

// Attention of queries [first, first + count) of a segment's (row, query head of the group) pairs.
void Decoder::Impl::attend_task(const PassContext& context, int layer_index, const Segment& segment, int kv_head,
                                int first, int count) {
    const int dim = config.head_dim, length = segment.end - segment.begin;
    const std::size_t stride = layers[index(layer_index)].qkv.y_stride();
    kernels::AttentionArgs args;
    args.n_queries = count;
    args.head_dim = dim;
    args.scale = 1.0f / std::sqrt(static_cast<float>(dim));
    args.keys = cache.keys(layer_index, segment.slot, kv_head);
    args.values = cache.values(layer_index, segment.slot, kv_head);
    args.scratch_stride = index(cache.shape().capacity);
    args.scratch = scores.as<float>() + index(context.thread) * kernels::kMostQueries * args.scratch_stride;
    args.mask_begin = segment.cached;
    for (int i = 0; i < count; ++i) {
        const int row = segment.begin + (first + i) / group();
        const int query_head = kv_head * group() + (first + i) % group();
        args.q[i] = qkv.as<float>() + index(row) * stride + query_head * dim;
        args.out[i] = attended.as<float>() + (index(row) * index(n_query_heads()) + index(query_head)) * index(dim);
        args.n_keys[i] = segment.cached + (pass.mask == Mask::full ? length : row - segment.begin + 1);
        if (pass.mask == Mask::window) args.first_key[i] = std::max(0, args.n_keys[i] - pass.window);
        if (pass.mask == Mask::by_parent) args.mask[i] = &ancestors[index(row) * (kMostRows / 64)];
    }
    kernels->attention(args);
}

void Decoder::Impl::mlp(const PassContext& context, const Layer& layer) {
    const std::size_t width = index(config.hidden_size), stride = layer.gate.y_stride();
    norm_rows(context, layer.post_attention_norm, x.as<float>(), rows());
    layer.gate.apply(context, normed_of(context.thread), width, rows(), gate.as<float>());
    layer.up.apply(context, normed_of(context.thread), width, rows(), up.as<float>());
    const dist::Slice mine = layer.gate.matrix().outputs_of(context.thread);
    for (int r = 0; r < rows(); ++r) {
        const std::size_t at = index(r) * stride + static_cast<std::size_t>(mine.begin);
        kernels->silu_multiply(gate.as<float>() + at, up.as<float>() + at, static_cast<int>(mine.size()));
    }
    context.barrier();
    layer.down.add_to(context, gate.as<float>(), stride, rows(), x.as<float>(), x_stride());
}

void Decoder::Impl::project_logits(const PassContext& context) {
    if (pass.logit_rows.empty()) return;
    const std::size_t width = index(config.hidden_size);
    float* to = normed_of(context.thread);
    for (std::size_t i = 0; i < pass.logit_rows.size(); ++i)
        kernels->rms_norm(x.as<float>() + index(pass.logit_rows[i]) * x_stride(), final_norm.data(), config.hidden_size,
                          config.norm_epsilon, to + i * width);
    const PackedMatrix& matrix = config.tied_embeddings ? embedding.table() : head.matrix();
    const int n_rows = static_cast<int>(pass.logit_rows.size());
    const std::size_t stride = index(matrix.n_padded());
    const int known = pass.summary_vocab > 0 ? pass.summary_vocab : config.vocab_size;
    const int first = static_cast<int>(embedding.vocab().begin); // token id of this rank's first output
    const int counted = std::clamp(known - first, 0, static_cast<int>(embedding.vocab().size()));
    kernels::LaneStats* lanes = lane_stats.data() + index(context.thread) * kMostRows;
    if (pass.summary == LogitSummary::entropy)
        matrix.multiply_logits(*kernels, context.thread, to, width, n_rows, logits.as<float>(), stride, context.scratch,
                               lanes, counted);
    else
        matrix.multiply(*kernels, context.thread, to, width, n_rows, logits.as<float>(), stride, false,
                        context.scratch);
    if (pass.summary == LogitSummary::none) return;
    const auto begin = static_cast<int>(matrix.outputs_of(context.thread).begin);
    const int n = std::clamp(counted - begin, 0, static_cast<int>(matrix.outputs_of(context.thread).size()));
    for (int r = 0; r < n_rows; ++r) {
        const float* row = logits.as<float>() + index(r) * stride + begin;
        kernels::LogitStats& part = summary_parts[index(context.thread) * kMostRows + index(r)];
        part = {};
        if (n > 0)
            part = pass.summary == LogitSummary::entropy ? kernels->finish_stats(lanes[r], row, n, first + begin)
                                                         : kernels->logit_max(row, n, first + begin);
    }
}

// Puts the threads' parts of each row together.
void Decoder::Impl::merge_summaries() {
    summaries.clear();
    if (pass.summary == LogitSummary::none) return;
    for (std::size_t r = 0; r < pass.logit_rows.size(); ++r) {
        kernels::LogitStats whole = summary_parts[r];
        for (int thread = 1; thread < team->size(); ++thread) {
            const kernels::LogitStats& part = summary_parts[index(thread) * kMostRows + r];
            if (part.arg_max >= 0) whole = whole.arg_max >= 0 ? merge(whole, part) : part;
        }
        summaries.push_back(whole);
    }
}

} // namespace entrodraft::model
