#include "model/gpu/ops.h"

#include "model/weights/positions.h"

#include <algorithm>
#include <utility>

namespace entrodraft::model::gpu {

// ---- what passes share ----

GpuWorkspace::GpuWorkspace(const ModelConfig& model, const RankShard& held, const DeviceWeights& read,
                           const CacheView& memory, dist::Communicator& ranks, const Stream& queue,
                           const DecoderOptions& options, const GpuTextShape& text)
    : config(model), shard(held), weights(read),
      embedding(text.embedding ? *text.embedding : read.outer[Role::embedding]), cache(memory), sources(text.sources),
      states(text.states), tp(ranks), stream(queue), max_rows(max_prompt_rows(config, options.weight_type)),
      n_text_rows(std::max(text.n_rows, max_rows)),
      adds_parts(tp.size() > 1 && (options.sum == TensorParallelSum::ordered ||
                                   (options.sum == TensorParallelSum::automatic && !tp.enqueued_sums_are_ordered()))),
      fast_gather_bytes(tp.size() > 1 && options.sum == TensorParallelSum::automatic ? tp.fast_gather_bytes() : 0) {
    if (config.block == Block::sandwich || config.block == Block::inner_norm)
        normed_delta = DeviceArray<float>(index(max_rows) * index(config.hidden_size));
    if (!config.is_encoder) logits = DeviceArray<float>(index(kMaxRows) * index(outputs()));
    const int n_heads = shard.n_query_heads();
    std::size_t floats = 0, counters = 0;
    for (const CacheView& attended_to : {cache, sources}) {
        floats = std::max(floats, attend_workspace_floats(n_heads, cache.value_dim, attended_to.capacity));
        counters = std::max(counters, attend_workspace_counters(n_heads, cache.value_dim, attended_to.capacity));
    }
    parts_of_keys = DeviceArray<float>(floats);
    arrived = DeviceArray<int>(counters);
    normed = rows_of(max_rows, config.hidden_size);
    if (weights.outer[Role::project_in].n > 0) embedded = rows_of(max_rows, config.embedding_size);
    if (!weights.layers.empty()) {
        const auto widest = [&](auto width_of) { // layers may be of several kinds
            return width_of(*std::ranges::max_element(weights.layers, {}, width_of));
        };
        qkv = rows_of(n_text_rows, widest([](const DeviceTensors& each) { return each[Role::qkv].outputs(); }));
        attended = rows_of(max_rows, widest([](const DeviceTensors& each) { return each[Role::output].k; }));
        wide = rows_of(max_rows, widest([](const DeviceTensors& each) { return each[Role::up].n; }));
        inner = rows_of(max_rows, widest([](const DeviceTensors& each) { return each[Role::down].k; }));
    }
    make_buffers_of_some();
    upload_tables(options.timeout_seconds);
}

DeviceBytes GpuWorkspace::rows_of(int rows, int width) const {
    return DeviceBytes(index(rows) * index(aligned(width)) * bytes_of(weights.type));
}

void GpuWorkspace::make_buffers_of_some() {
    const int n_heads = shard.n_query_heads();
    if (config.is_latent()) {
        if (const int rank = config.latent.query_rank; rank > 0) {
            query_vectors = rows_of(max_rows, rank);
            queries = rows_of(max_rows, n_heads * config.head_dim);
        }
        absorbed = rows_of(max_rows, n_heads * cache.head_stride);
        latent_attended = rows_of(max_rows, n_heads * cache.value_dim);
    }
    states_read = DeviceArray<float>(index(max_rows) * index(states.n_key_heads * states.value_columns()));
    ordered = rows_of(max_rows, weights.widest_order);
    if (config.n_expert_layers() > 0) {
        const ExpertsConfig& experts = config.experts;
        const int n_pairs = max_rows * experts.n_chosen;
        router_products = DeviceArray<float>(index(max_rows) * index(experts.n_experts + 1));
        expert_begin = DeviceArray<std::int32_t>(index(experts.n_experts + 1));
        live_experts = DeviceArray<std::int32_t>(index(experts.n_experts));
        for (DeviceArray<std::int32_t>* each : {&chosen, &pairs, &pair_rows})
            *each = DeviceArray<std::int32_t>(index(n_pairs));
        expert_weights = DeviceArray<float>(index(n_pairs));
        expert_outputs = DeviceArray<float>(index(n_pairs) * index(config.hidden_size));
        expert_inner = rows_of(n_pairs, static_cast<int>(shard.expert.size()));
    }
    if (config.is_draft_head()) {
        const FusionConfig& fusion = config.fusion;
        features = DeviceArray<float>(index(max_rows) * index(std::max(fusion.width(), config.hidden_size)));
        if (fusion.projects_features || fusion.kind == Fusion::cells)
            projected = DeviceArray<float>(index(max_rows) * index(fusion.projected_size(config.hidden_size)));
        if (fusion.projects_features) wide_features = rows_of(max_rows, fusion.feature_numbers());
        joined = rows_of(max_rows, std::max(fusion.joined_size(config.hidden_size), fusion.residual_size));
    }
}

void GpuWorkspace::upload_tables(double timeout_seconds) {
    const auto upload = [&]<typename T>(const std::vector<T>& values) {
        DeviceArray<T> array(values.size());
        copy(stream, array.data(), values.data(), values.size() * sizeof(T));
        stream.wait(timeout_seconds);
        return array;
    };
    const dist::HeadShard& heads = shard.heads;
    const int group = config.n_heads / config.n_kv_heads;
    std::vector<std::int32_t> kv_head_of;
    for (std::int64_t head = heads.query_heads.begin; head < heads.query_heads.end; ++head)
        kv_head_of.push_back(static_cast<std::int32_t>(head / group - heads.kv_heads.begin));
    kv_heads = upload(kv_head_of);
    if (!config.output_tokens.empty()) {
        const auto all = config.output_tokens.begin();
        output_tokens = upload(std::vector<std::int32_t>(all + shard.outputs.begin, all + shard.outputs.end));
    }
    if (sources.capacity > 0) {
        no_prefix_lengths = upload(std::vector<std::int32_t>(index(max_rows), 0));
        no_mask_begins = upload(std::vector<std::int32_t>(index(max_rows), -1));
    }
    const auto angles_of = [&](const Rope& rope) {
        RotaryTable table(rope);
        table.cover(config.max_positions - 1);
        const std::size_t numbers = index(config.max_positions) * index(rope.dims / 2);
        return Angles{upload(std::vector<float>(table.cosines(0), table.cosines(0) + numbers)),
                      upload(std::vector<float>(table.sines(0), table.sines(0) + numbers))};
    };
    if (config.positions == Positions::rotary) angles = angles_of(config.rope);
    if (std::ranges::find(config.layer_ropes, LayerRope::local) != config.layer_ropes.end())
        local_angles = angles_of(config.local_rope);
    if (config.query_key_norm == QueryKeyNorm::row) {
        std::vector<std::int32_t> counts;
        for (std::int64_t head = heads.kv_heads.begin; head < heads.kv_heads.end; ++head)
            counts.push_back(heads.query_heads.contains(head * group) ? 1 : 0);
        counts_head = upload(counts);
    }
    if (config.positions == Positions::alibi) {
        const std::vector<float> all = alibi_slopes(config.n_heads, config.scaled_alibi);
        slopes = upload(std::vector<float>(all.begin() + heads.query_heads.begin, all.begin() + heads.query_heads.end));
    }
}

void GpuWorkspace::make_summed(dist::Deadline deadline) {
    if (x.size() > 0) return;
    x = SummedArray(tp, index(n_text_rows) * index(config.hidden_size), deadline);
    delta = SummedArray(tp, index(max_rows) * index(std::max(config.hidden_size, config.embedding_size)), deadline);
    const bool gathers = adds_parts || fast_gather_bytes > 0;
    if (gathers) parts = SummedArray(tp, index(tp.size()) * index(kMaxRows) * index(config.hidden_size), deadline);
    if (config.query_key_norm != QueryKeyNorm::row) return;
    squares = SummedArray(tp, index(max_rows) * 2, deadline);
    if (gathers) square_parts = SummedArray(tp, index(tp.size()) * index(kMaxRows) * 2, deadline);
}

void GpuWorkspace::sum_over_ranks(float* data, int rows, int width) const {
    if (tp.size() > 1)
        tp.enqueue_all_reduce_sum(data, index(rows) * index(width), dist::ElementType::float32, stream.handle());
}

// ---- the residual stream ----

void GpuOps::embed() {
    const ModelConfig& config = w_.config;
    if (config.fusion.kind == Fusion::features) return; // such a head has no embedding
    const DeviceWeights& weights = w_.weights;
    const bool projects = config.embedding_size != config.hidden_size;
    Embed tokens;
    tokens.type = weights.type;
    tokens.table = w_.embedding.numbers.data();
    tokens.stride = w_.embedding.stride;
    tokens.first_token = static_cast<int>(w_.shard.looked_up.begin);
    tokens.n_tokens = static_cast<int>(w_.shard.looked_up.size());
    tokens.width = config.embedding_size;
    tokens.scale = config.embedding_scale;
    tokens.position_offset = config.position_offset;
    tokens.x = projects ? w_.delta.data() : x();
    Embed positions = tokens; // without tokens of its own
    positions.n_tokens = 0;
    positions.width = config.hidden_size;
    positions.positions = weights.outer.vector(Role::positions).weight.data();
    positions.x = x();
    const bool is_whole = tokens.n_tokens == config.vocab_size;
    if (!projects && (is_whole || w_.shard.is_first)) tokens.positions = positions.positions; // added by one rank only
    gpu::embed(handle(), rows_, tokens);
    if (!is_whole) w_.sum_over_ranks(tokens.x, rows_.rows, tokens.width);
    if (!projects) return;
    NormCall call = norm_call(w_.delta.data(), {});
    call.width = config.embedding_size;
    multiply_into_delta({weights.outer[Role::project_in], rounded(call, w_.embedded)}, false);
    gpu::embed(handle(), rows_, positions);
    pending_ = w_.delta.data();
    n_pending_parts_ = 1;
}

void GpuOps::multiply_into_delta(const Product& product, bool add) {
    Linear call = linear_call(product.matrix, product.from);
    call.y = w_.delta.data();
    call.y_stride = w_.config.hidden_size;
    call.add = add;
    multiply(call);
}

void GpuOps::add(std::initializer_list<Product> products) {
    for (const Product& product : products)
        multiply_into_delta(product, &product != products.begin());
    sum_delta();
}

// Sums of rows this wide are gathered if NCCL's order of addition would vary, or if gathering takes less time.
bool GpuOps::gathers_sum_of(int width) const {
    return extent_.logit_rows > 0 &&
           (w_.adds_parts || index(rows_.rows) * index(width) * sizeof(float) <= w_.fast_gather_bytes);
}

// Makes the sum of delta over the ranks pending. NCCL's order of addition depends on the message's size and on a row's
// place in it. Only a prompt's rows, whose outputs are not emitted, always lie in the same place, and chunks of any
// length are summed like whole ones. With two ranks every order gives the same sum.
void GpuOps::sum_delta() {
    const int hidden = w_.config.hidden_size;
    if (gathers_sum_of(hidden)) {
        w_.tp.enqueue_all_gather(w_.delta.data(), w_.parts.data(), index(rows_.rows) * index(hidden) * sizeof(float),
                                 handle());
        pending_ = w_.parts.data();
        n_pending_parts_ = w_.tp.size();
    } else {
        w_.sum_over_ranks(w_.delta.data(), summed_rows(), hidden);
        pending_ = w_.delta.data();
        n_pending_parts_ = 1;
    }
}

void GpuOps::add_normed(Product product, const DeviceNorm& norm) {
    multiply_into_delta(product, false);
    sum_delta();
    NormCall call = norm_call(w_.delta.data(), norm);
    call.out = w_.normed_delta.data();
    call.out_stride = w_.config.hidden_size;
    add_and_norm(handle(), call);
    pending_ = w_.normed_delta.data();
    n_pending_parts_ = 1;
    add_pending();
}

void GpuOps::add_pending() {
    if (pending_ != nullptr) add_and_norm(handle(), norm_call(x(), {}));
}

// Keeps norm(x) if the pass asks for the hidden states of that layer.
void GpuOps::keep_hidden(int layer, const DeviceNorm& norm) {
    const int hidden = w_.config.hidden_size;
    for (std::size_t i = 0; i < pass_.hidden_layers.size(); ++i) {
        if (pass_.hidden_layers[i] != layer) continue;
        NormCall call = norm_call(x(), norm);
        call.out = hidden_ + i * index(rows_.rows) * index(hidden);
        call.out_stride = hidden;
        add_and_norm(handle(), call);
    }
}

// ---- a draft head's fusion ----

GpuOps::Features GpuOps::features() {
    const FusionConfig& config = w_.config.fusion;
    const DeviceTensors& outer = w_.weights.outer;
    if (pass_.features_are_own) return {w_.features.data(), w_.config.hidden_size};
    const Features all = {w_.features.data(), config.feature_numbers()};
    const auto norm = [&](Features part, const DeviceNorm& weight) { // in place
        NormCall call = rows_call(part.data, part.width, weight);
        call.out = part.data;
        call.x_stride = call.out_stride = config.width();
        add_and_norm(handle(), call);
    };
    Features part = {all.data, config.feature_norm_size};
    for (const DeviceNorm& weight : outer.vectors(Role::feature_norm)) {
        norm(part, weight);
        part.data += part.width;
    }
    if (config.features_scale != 0) norm(all, w_.weights.feature_scale);
    if (!config.projects_features) return all;
    NormCall from = rows_call(all.data, all.width, {});
    from.x_stride = config.width();
    Linear call = linear_call(outer[Role::feature_projection], rounded(from, w_.wide_features));
    const Features to = {w_.projected.data(), config.projected_size(w_.config.hidden_size)};
    call.y = to.data;
    call.y_stride = to.width;
    multiply(call);
    return to;
}

GpuOps::Operand GpuOps::join(Features features) {
    const ModelConfig& config = w_.config;
    const DeviceTensors& outer = w_.weights.outer;
    const bool features_first = config.fusion.kind == Fusion::concat || config.fusion.features_first;
    const auto write = [&](NormCall call, int begin) {
        call.out = w_.joined.data() + index(begin) * bytes_of(w_.weights.type);
        call.out_type = w_.weights.type;
        call.out_stride = aligned(config.fusion.joined_size(config.hidden_size));
        add_and_norm(handle(), call);
    };
    write(norm_call(x(), outer.vector(Role::fused_embedding_norm)), features_first ? features.width : 0);
    write(rows_call(features.data, features.width, outer.vector(Role::state_norm)),
          features_first ? 0 : config.hidden_size);
    return joined();
}

// Returns a product whose result becomes x.
Linear GpuOps::into_x(const Product& product) const {
    Linear call = linear_call(product.matrix, product.from);
    call.y = x();
    call.y_stride = w_.config.hidden_size;
    return call;
}

void GpuOps::add_activated(const Product& product) {
    Linear call = into_x(product);
    call.add = true;
    call.epilogue = Epilogue::activation;
    call.activation = w_.config.activation;
    multiply(call);
}

void GpuOps::add_feed_forward(const DeviceMatrix& in, const DeviceMatrix& out) {
    Linear call = linear_call(in, read_residual());
    call.y = w_.joined.data();
    call.y_stride = aligned(out.k);
    call.y_type = w_.weights.type;
    call.epilogue = Epilogue::activation;
    call.activation = w_.config.activation;
    multiply(call);
    call = into_x({out, joined()});
    call.add = true;
    multiply(call);
}

void GpuOps::run_cell(const DeviceMatrix& cell, Operand from) {
    const int hidden = w_.config.hidden_size;
    Linear call = linear_call(cell, from);
    call.y = w_.projected.data();
    call.y_stride = 3 * hidden;
    multiply(call);
    gpu::run_cell(handle(), {w_.projected.data(), x(), hidden, rows_.rows});
}

void GpuOps::fuse_activated(Operand joined) {
    multiply(into_x({w_.weights.outer[Role::skip], joined}));
    add_activated({w_.weights.outer[Role::fusion], joined});
}

void GpuOps::add_features(Features features) {
    const int hidden = w_.config.hidden_size;
    add_pending();
    NormCall call = norm_call(x(), w_.weights.outer.vector(Role::sum_norm));
    call.delta = features.data;
    call.out = call.x;
    call.out_stride = hidden;
    add_and_norm(handle(), call);
    gpu::activate(handle(), {w_.config.activation, NumberType::float32, call.x, hidden, false, call.x, hidden, hidden,
                             rows_.rows});
}

LstmCall GpuOps::lstm_call(Features gates) const {
    const FusionConfig& fusion = w_.config.fusion;
    const float* cell = fusion.cell_size > 0 ? w_.features.data() + fusion.feature_numbers() : nullptr;
    return {w_.config.activation, gates.data, x(), cell, fusion.width(), w_.config.hidden_size, rows_.rows};
}

void GpuOps::lstm_cell(Features gates) {
    const int hidden = w_.config.hidden_size;
    add_pending();
    NormCall candidate = rows_call(gates.data + 3 * index(hidden), hidden, w_.weights.outer.vector(Role::cell_norm));
    candidate.delta = x();
    candidate.out = candidate.x;
    candidate.x_stride = candidate.out_stride = gates.width;
    add_and_norm(handle(), candidate);
    gpu::lstm_cell(handle(), lstm_call(gates));
}

void GpuOps::lstm_output(Features gates) {
    norm_residual(w_.weights.outer.vector(Role::sum_norm));
    gpu::lstm_output(handle(), lstm_call(gates));
}

void GpuOps::replace_residual(Features features) {
    NormCall call = rows_call(features.data, features.width, w_.weights.outer.vector(Role::state_norm));
    if (!w_.config.fusion.normed_residual) call.weight = nullptr;
    call.out = x();
    call.out_stride = w_.config.hidden_size;
    add_and_norm(handle(), call);
}

// ---- norms ----

// Returns a norm of all rows, [width]; its output is not set yet.
NormCall GpuOps::rows_call(float* x, int width, const DeviceNorm& norm) const {
    NormCall call;
    call.x = x;
    call.width = width;
    call.norm = norm.kind;
    call.weight = norm.weight.data();
    call.bias = norm.bias.data();
    call.epsilon = norm.epsilon;
    call.rows = rows_.rows;
    return call;
}

// The same for x, the residual stream, or delta. Pending sums are first added to x, or replace delta.
NormCall GpuOps::norm_call(float* x, const DeviceNorm& norm) {
    NormCall call = rows_call(x, w_.config.hidden_size, norm);
    call.delta = std::exchange(pending_, nullptr);
    call.n_parts = n_pending_parts_;
    call.replaces_x = x == w_.delta.data();
    if (call.delta == x) call.delta = nullptr; // delta is pending itself
    return call;
}

GpuOps::Operand GpuOps::rounded(NormCall call, const DeviceBytes& to) {
    call.out = to.data();
    call.out_type = w_.weights.type;
    call.out_stride = aligned(call.width);
    add_and_norm(handle(), call);
    return {to.data(), call.rows};
}

void GpuOps::norm_residual(const DeviceNorm& norm) {
    NormCall call = norm_call(x(), norm);
    call.out = call.x;
    call.out_stride = call.width;
    add_and_norm(handle(), call);
}

GpuOps::Operand GpuOps::final_norm() {
    if (extent_.logit_rows == 0) return {};
    add_pending();
    keep_hidden(w_.config.n_layers + 1, w_.weights.outer.vector(Role::final_norm));
    NormCall call = norm_call(x(), w_.weights.outer.vector(Role::final_norm));
    call.rows = extent_.logit_rows;
    call.from_rows = logit_rows_;
    return rounded(call, w_.normed);
}

// ---- the two halves of a layer ----

// Returns a product whose output is not set yet.
Linear GpuOps::linear_call(const DeviceMatrix& matrix, Operand from) const {
    Linear call = matrix.product(w_.weights.type);
    call.x = from.data;
    call.rows = from.n_rows;
    if (matrix.order.size() == 0) return call;
    order_inputs(handle(), {static_cast<const std::uint16_t*>(from.data), matrix.order.data(),
                            reinterpret_cast<std::uint16_t*>(w_.ordered.data()), matrix.k, matrix.stride, from.n_rows});
    call.x = w_.ordered.data();
    return call;
}

void GpuOps::multiply(const Linear& call) const {
    extent_.prompt_products != nullptr ? extent_.prompt_products->multiply(call) : linear(handle(), call);
}

GpuOps::Operand GpuOps::column_linear(const DeviceMatrix& matrix, Operand from, Operand to) {
    const auto multiply_into = [&](const DeviceMatrix& part, int first_output) {
        Linear call = linear_call(part, from);
        call.y = static_cast<std::byte*>(to.data) + index(first_output) * bytes_of(w_.weights.type);
        call.y_stride = aligned(matrix.outputs());
        call.y_type = w_.weights.type;
        multiply(call);
    };
    multiply_into(matrix, 0);
    for (const DeviceMatrix& last : matrix.last)
        multiply_into(last, matrix.n);
    return {to.data, from.n_rows};
}

HeadRows GpuOps::heads(int layer, Operand qkv) const {
    // All layers of an encoder share one layer of cache.
    const int of_cache = w_.config.is_encoder ? 0 : w_.config.cache_layer(layer);
    const int n_heads = w_.shard.n_query_heads();
    const int width =
        w_.config.is_latent() ? n_heads * w_.cache.head_stride : w_.weights.layers[index(layer)][Role::qkv].n;
    return {w_.cache, of_cache, qkv.data, aligned(width), n_heads};
}

// Computes only the sums, by which rotate_and_append norms. They are added up as sum_delta() adds up delta.
void GpuOps::norm_queries_and_keys(const DeviceTensors& layer, Operand qkv) {
    SquaresCall call{{w_.cache, 0, qkv.data, aligned(layer[Role::qkv].n), w_.shard.n_query_heads()}};
    call.counts_head = w_.counts_head.data();
    call.squares = w_.squares.data();
    call.rows = rows_.rows;
    sum_squares(handle(), call);
    if (gathers_sum_of(2))
        w_.tp.enqueue_all_gather(w_.squares.data(), w_.square_parts.data(), index(rows_.rows) * 2 * sizeof(float),
                                 handle());
    else
        w_.sum_over_ranks(w_.squares.data(), summed_rows(), 2);
}

void GpuOps::rotate_and_append(int layer, Operand qkv) {
    const DeviceTensors& weights = w_.weights.layers[index(layer)];
    PlaceCall call{heads(layer, qkv)};
    call.query_norm = weights.vector(Role::query_norm).weight.data();
    call.key_norm = weights.vector(Role::key_norm).weight.data();
    call.norm_epsilon = w_.config.norm_epsilon;
    if (w_.config.query_key_norm == QueryKeyNorm::row) {
        call.row_squares = gathers_sum_of(2) ? w_.square_parts.data() : w_.squares.data();
        call.n_square_parts = gathers_sum_of(2) ? w_.tp.size() : 1;
        call.query_count = static_cast<float>(w_.config.n_heads * w_.config.head_dim);
        call.key_count = static_cast<float>(w_.config.n_kv_heads * w_.config.head_dim);
    }
    const LayerRope which = w_.config.layer_rope(layer);
    const GpuWorkspace::Angles& angles = which == LayerRope::local ? w_.local_angles : w_.angles;
    if (which != LayerRope::none) {
        call.cosines = angles.cosines.data();
        call.sines = angles.sines.data();
    }
    call.rotary_dims = w_.config.rope.dims;
    call.interleaved = w_.config.rope.interleaved;
    place_keys(handle(), rows_, call);
}

// ---- latent attention ----

GpuOps::Operand GpuOps::queries_of(Operand vectors) const {
    return w_.config.latent.query_rank > 0 ? Operand{w_.queries.data(), vectors.n_rows} : vectors;
}

int GpuOps::query_stride() const {
    const DeviceTensors& layer = w_.weights.layers.front();
    return aligned(w_.config.latent.query_rank > 0 ? layer[Role::query_up].n : layer[Role::qkv].n);
}

GpuOps::Operand GpuOps::latent_queries(const DeviceTensors& layer, Operand vectors) {
    const int rank = w_.config.latent.query_rank;
    if (rank == 0) return vectors;
    norm_vectors(handle(),
                 {w_.weights.type, vectors.data, aligned(layer[Role::qkv].n),
                  layer.vector(Role::query_down_norm).weight.data(), rank, layer.vector(Role::query_down_norm).epsilon,
                  w_.query_vectors.data(), aligned(rank), vectors.n_rows});
    return column_linear(layer[Role::query_up], {w_.query_vectors.data(), vectors.n_rows}, queries_of(vectors));
}

void GpuOps::append_latent(int layer, Operand vectors) {
    const DeviceTensors& weights = w_.weights.layers[index(layer)];
    const int n_heads = w_.shard.n_query_heads(), query_rank = w_.config.latent.query_rank;
    const int in_front = query_rank > 0 ? query_rank : n_heads * w_.config.head_dim;
    PlaceLatentsCall call;
    call.cache = w_.cache;
    call.layer = layer;
    call.vectors = static_cast<const std::byte*>(vectors.data) + index(in_front) * bytes_of(w_.weights.type);
    call.vector_stride = aligned(weights[Role::qkv].n);
    call.norm = weights.vector(Role::key_value_down_norm).weight.data();
    call.norm_epsilon = weights.vector(Role::key_value_down_norm).epsilon;
    call.queries = queries_of(vectors).data;
    call.query_stride = query_stride();
    call.query_dim = w_.config.head_dim;
    call.absorbed = w_.absorbed.data();
    call.absorbed_stride = aligned(n_heads * w_.cache.head_stride);
    call.n_query_heads = n_heads;
    call.cosines = w_.angles.cosines.data();
    call.sines = w_.angles.sines.data();
    call.interleaved = w_.config.rope.interleaved;
    place_latents(handle(), rows_, call);
}

HeadLinear GpuOps::head_call(const DeviceMatrix& matrices, Operand from) const {
    HeadLinear call;
    call.type = w_.weights.type;
    call.w = matrices.numbers.data();
    call.k = matrices.k;
    call.stride = matrices.stride;
    call.n_heads = w_.shard.n_query_heads();
    call.n = matrices.n / call.n_heads;
    call.x = from.data;
    call.rows = from.n_rows;
    return call;
}

// Fills everything except the rotated ends, which append_latent() writes.
GpuOps::Operand GpuOps::absorb(int layer, Operand queries) {
    HeadLinear call = head_call(w_.weights.layers[index(layer)][Role::absorb], queries);
    call.x_stride = query_stride();
    call.x_step = w_.config.head_dim;
    call.y = w_.absorbed.data();
    call.y_step = w_.cache.head_stride;
    call.y_stride = aligned(call.n_heads * call.y_step);
    head_linear(handle(), call);
    return {call.y, queries.n_rows};
}

GpuOps::Operand GpuOps::expand(int layer, Operand attended) {
    const DeviceTensors& weights = w_.weights.layers[index(layer)];
    HeadLinear call = head_call(weights[Role::expand], attended);
    call.x_step = call.k;
    call.x_stride = aligned(call.n_heads * call.x_step);
    call.y = w_.attended.data();
    call.y_step = call.n;
    call.y_stride = aligned(weights[Role::output].k);
    head_linear(handle(), call);
    return {call.y, attended.n_rows};
}

// ---- linear attention ----

GpuOps::Operand GpuOps::delta_net(int layer, Operand projected) {
    const DeviceTensors& weights = w_.weights.layers[index(layer)];
    DeltaNetCall call;
    call.states = w_.states;
    call.segments = extent_.segments;
    call.layer = w_.config.cache_layer(layer);
    call.projected = projected.data;
    call.projected_stride = aligned(weights[Role::qkv].outputs());
    call.convolution = weights.vector(Role::convolution).weight.data();
    call.decay_rates = weights.vector(Role::decay_rates).weight.data();
    call.decay_bias = weights.vector(Role::decay_bias).weight.data();
    call.length_epsilon = LinearAttentionConfig::kLengthEpsilon;
    call.activation = w_.config.activation;
    call.norm = weights.vector(Role::delta_norm).weight.data();
    call.norm_epsilon = weights.vector(Role::delta_norm).epsilon;
    call.saved = extent_.saved_states;
    call.read = w_.states_read.data();
    call.attended = w_.attended.data();
    call.attended_stride = aligned(weights[Role::output].k);
    gpu::delta_net(handle(), rows_, call);
    return {call.attended, projected.n_rows};
}

GpuOps::Operand GpuOps::gate_attended(Operand attended, Operand qkv) {
    const int n = w_.shard.n_query_heads() * w_.config.head_dim;
    const int before = n + 2 * w_.shard.n_kv_heads() * w_.config.head_dim;
    GateAttendedCall call;
    call.type = w_.weights.type;
    call.attended = attended.data;
    call.attended_stride = aligned(n);
    call.gates = static_cast<const std::byte*>(qkv.data) + index(before) * bytes_of(w_.weights.type);
    call.gate_stride = aligned(before + n);
    call.width = n;
    call.rows = attended.n_rows;
    gpu::gate_attended(handle(), call);
    return attended;
}

// ---- attention ----

GpuOps::Operand GpuOps::attend(int layer, Operand qkv) {
    AttendCall call{heads(layer, qkv)};
    call.slopes = w_.slopes.data();
    call.scaled_alibi = w_.config.scaled_alibi;
    call.relative_biases = w_.weights.outer.vector(Role::relative_biases).weight.data();
    call.max_distance = w_.config.relative.max_distance;
    call.sinks = w_.weights.layers[index(layer)].vector(Role::sinks).weight.data();
    call.window = w_.config.window(layer);
    return attend(call, rows_);
}

// Sources are texts in their own cache. A row sees all of its source.
GpuOps::Operand GpuOps::attend_source(int layer, Operand query) {
    RowTable rows = rows_;
    rows.slots = rows.prefix_slots = rows_.source_slots;
    rows.n_keys = rows_.source_lengths;
    rows.prefix_lengths = w_.no_prefix_lengths.data();
    rows.mask_begins = w_.no_mask_begins.data();
    const int stride = aligned(w_.weights.layers[index(layer)][Role::cross_query].n);
    return attend({{w_.sources, layer, query.data, stride, w_.shard.n_query_heads()}}, rows);
}

GpuOps::Operand GpuOps::attend(AttendCall call, const RowTable& rows) {
    call.kv_head_of = w_.kv_heads.data();
    call.scale = w_.config.attention_scale;
    call.soft_cap = w_.config.attention_soft_cap;
    call.parts = w_.parts_of_keys.data();
    call.arrived = w_.arrived.data();
    const bool is_latent = w_.config.is_latent();
    call.attended = (is_latent ? w_.latent_attended : w_.attended).data();
    call.out_stride = aligned(call.n_query_heads * w_.cache.value_dim);
    (extent_.prompt_products != nullptr ? attend_prompt : gpu::attend)(handle(), rows, call);
    return {call.attended, rows.rows};
}

// The product applies the activation itself, unless a library multiplies.
GpuOps::Operand GpuOps::feed_forward(const DeviceTensors& layer, Operand from) {
    if (extent_.prompt_products != nullptr) {
        const Operand wide = column_linear(layer[Role::up], from, {w_.wide.data()});
        const int width = layer[Role::down].k;
        gpu::activate(handle(), {w_.config.activation, w_.weights.type, wide.data, aligned(layer[Role::up].n),
                                 w_.config.gated_mlp, w_.inner.data(), aligned(width), width, wide.n_rows});
        return {w_.inner.data(), wide.n_rows};
    }
    Linear call = linear_call(layer[Role::up], from);
    call.y = w_.inner.data();
    call.y_stride = aligned(layer[Role::down].k);
    call.y_type = w_.weights.type;
    call.epilogue = w_.config.gated_mlp ? Epilogue::gate : Epilogue::activation;
    call.activation = w_.config.activation;
    linear(handle(), call);
    return {w_.inner.data(), from.n_rows};
}

// ---- experts ----

void GpuOps::choose_experts(const DeviceTensors& layer, Operand from) {
    const ExpertsConfig& experts = w_.config.experts;
    Linear products = linear_call(layer[Role::router], from);
    products.y = w_.router_products.data();
    products.y_stride = layer[Role::router].n;
    linear(handle(), products);
    ChooseExperts call;
    call.logits = w_.router_products.data();
    call.stride = layer[Role::router].n;
    call.correction = layer.vector(Role::router_correction).weight.data();
    call.n_experts = experts.n_experts;
    call.n_chosen = experts.n_chosen;
    call.score = experts.score;
    call.n_groups = experts.n_groups;
    call.n_chosen_groups = experts.n_chosen_groups;
    call.n_group_best = experts.n_group_best;
    call.normalizes = experts.normalizes;
    call.scale = experts.scale;
    call.chosen = w_.chosen.data();
    call.weights = w_.expert_weights.data();
    call.pairs = w_.pairs.data();
    call.begin = w_.expert_begin.data();
    call.live = w_.live_experts.data();
    call.pair_rows = w_.pair_rows.data();
    gpu::choose_experts(handle(), rows_, call);
}

void GpuOps::add_experts(const DeviceTensors& layer, Operand from) {
    const ExpertsConfig& experts = w_.config.experts;
    const auto product_of = [&](const DeviceMatrix& matrices, const void* x) {
        ExpertLinear call{matrices.product(w_.weights.type)};
        call.n = matrices.n / experts.n_experts;
        call.n_experts = experts.n_experts;
        call.x = x;
        call.rows = rows_.rows * experts.n_chosen;
        call.begin = w_.expert_begin.data();
        call.live = w_.live_experts.data();
        return call;
    };
    const bool has_part = layer[Role::expert_down].k > 0;
    if (has_part) {
        ExpertLinear wide = product_of(layer[Role::expert_up], from.data);
        wide.from_rows = w_.pair_rows.data();
        wide.y = w_.expert_inner.data();
        wide.y_stride = aligned(layer[Role::expert_down].k);
        wide.y_type = w_.weights.type;
        wide.epilogue = Epilogue::gate;
        wide.activation = w_.config.activation;
        wide.gate_limit = experts.swiglu_limit;
        wide.gate_slope = experts.swiglu_slope;
        expert_linear(handle(), wide);
        ExpertLinear down = product_of(layer[Role::expert_down], w_.expert_inner.data());
        down.y = w_.expert_outputs.data();
        down.y_stride = w_.config.hidden_size;
        expert_linear(handle(), down);
    }
    AddExperts call;
    call.keeps = experts.shared_size > 0;
    if (call.keeps) multiply_into_delta({layer[Role::down], feed_forward(layer, from)}, false);
    if (experts.gated_shared) {
        call.gates = w_.router_products.data() + experts.n_experts;
        call.gate_stride = layer[Role::router].n;
    }
    call.outputs = has_part ? w_.expert_outputs.data() : nullptr;
    call.weights = w_.expert_weights.data();
    call.pairs = w_.pairs.data();
    call.n_chosen = experts.n_chosen;
    call.y = w_.delta.data();
    call.width = w_.config.hidden_size;
    call.rows = rows_.rows;
    gpu::add_experts(handle(), call);
    sum_delta();
}

// ---- logits ----

void GpuOps::head(Operand from) {
    Linear call = linear_call(w_.weights.head(), from);
    call.bias = w_.weights.outer.vector(Role::head_bias).weight.data();
    call.y = w_.logits.data();
    call.y_stride = w_.outputs();
    linear(handle(), call);
    if (w_.config.logit_soft_cap > 0)
        soft_cap(handle(), w_.logits.data(), index(from.n_rows) * index(w_.outputs()), w_.config.logit_soft_cap);
}

} // namespace entrodraft::model::gpu
