#include "model/weights/layer_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace entrodraft::model {
namespace {

using Content = StoredTensor::Content;

// Makes the plan of a layer, of an expert, or of the tensors around the layers. Each method describes some tensors:
// their names, their whole shape, and this rank's part.
class Planner {
  public:
    // `transposed`: matrices are stored [in, out].
    Planner(const ModelConfig& config, const ModelNames& names, const RankShard& shard, std::string prefix,
            bool transposed)
        : config_(config), names_(names), stems_(names.stems.layer), shard_(shard), prefix_(std::move(prefix)),
          transposed_(transposed) {}

    TensorPlan take() { return std::move(plan_); }

    // ---- a layer ----

    void layer_norms(bool has_attention_norm) {
        if (has_attention_norm) norm(Role::attention_norm, stems_.attention_norm);
        norm(Role::mlp_norm, stems_.mlp_norm);
        norm(Role::after_attention_norm, stems_.after_attention_norm);
        norm(Role::after_mlp_norm, stems_.after_mlp_norm);
    }

    void attention(int number) {
        const std::int64_t input = attention_input_size(config_, number);
        add(Role::qkv, stems_.qkv.empty() ? separate_rows(input) : fused_rows(input), {0, input});
        head_norms();
        sinks();
        output();
    }

    void latent_attention() {
        const LatentConfig& latent = config_.latent;
        const bool has_vector = latent.query_rank > 0; // from which queries are made
        const dist::Slice own = shard_.heads.query_heads, queries = numbers_of(own, config_.head_dim);
        const StoredTensor& query = matrix(stems_.query, config_.n_heads * dim(),
                                           has_vector ? latent.query_rank : config_.hidden_size, config_.qkv_bias);
        const StoredSlice first = has_vector
                                      ? StoredSlice{&matrix(stems_.query_down, latent.query_rank, config_.hidden_size),
                                                    {0, latent.query_rank}}
                                      : StoredSlice{&query, queries};
        const StoredTensor& down = matrix(stems_.key_value_down, latent.rank + latent.rotated_dim, config_.hidden_size);
        add(Role::qkv, {first, {&down, {0, latent.rank + latent.rotated_dim}}}, hidden());
        const auto vector_norm = [&](Role role, std::string_view stem, std::int64_t width) {
            if (PlannedVector* planned = norm(role, stem, width, false)) {
                planned->norm = Norm::rms;
                planned->epsilon = LatentConfig::kNormEpsilon;
            }
        };
        vector_norm(Role::query_down_norm, stems_.query_down_norm, latent.query_rank);
        vector_norm(Role::key_value_down_norm, stems_.key_value_down_norm, latent.rank);
        output();
        if (has_vector) add(Role::query_up, {{&query, queries}}, {0, latent.query_rank});
        const std::int64_t of_head = latent.plain_dim + latent.value_dim;
        const StoredTensor& up = matrix(stems_.key_value_up, config_.n_heads * of_head, latent.rank);
        for (std::int64_t head = own.begin; head < own.end; ++head) {
            const dist::Slice keys = {head * of_head, head * of_head + latent.plain_dim};
            const dist::Slice values = {keys.end, keys.end + latent.value_dim};
            // Its inputs are the rows of the keys: the matrix is read transposed.
            add(Role::absorb, {{&up, {0, latent.rank}}}, keys).transposed = !transposed_;
            add(Role::expand, {{&up, values}}, {0, latent.rank});
        }
    }

    void linear_attention() {
        const LinearAttentionConfig& linear = config_.linear;
        const dist::Slice keys = shard_.linear_keys;
        const std::int64_t values = std::int64_t{linear.group()} * linear.value_dim;
        const std::int64_t n_heads = linear.n_value_heads, all_values = n_heads * linear.value_dim;
        add(Role::qkv, stems_.linear_in.empty() ? separate_linear_rows() : grouped_linear_rows(), hidden());
        const StoredTensor& output = matrix(stems_.linear_output, config_.hidden_size, all_values);
        add(Role::output, {{&output, hidden()}}, numbers_of(keys, values), Split::rows);

        const std::int64_t n_keys = std::int64_t{linear.n_key_heads} * linear.key_dim;
        const StoredTensor& convolution = stored(tensor_names(prefix_, stems_.linear_convolution, false),
                                                 {2 * n_keys + all_values, 1, linear.n_convolved}, Content::matrix);
        vector(Role::convolution, convolution, {}, keys.size() * linear.n_convolved * linear.convolved_size());
        const dist::Slice heads = numbers_of(keys, linear.group());
        vector(Role::decay_rates, whole(stems_.linear_decay, n_heads), {heads}, heads.size());
        vector(Role::decay_bias, whole(stems_.linear_decay_bias, n_heads), {heads}, heads.size());
        const StoredTensor& norm =
            stored(tensor_names(prefix_, stems_.linear_norm, false), {linear.value_dim}, Content::plain_norm);
        PlannedVector& planned = vector(Role::delta_norm, norm, {}, linear.value_dim);
        planned.epsilon = config_.norm_epsilon;
    }

    void cross_attention() {
        norm(Role::cross_norm, stems_.cross_norm);
        const std::int64_t query_size = config_.n_heads * dim(), width = config_.hidden_size;
        const dist::Slice queries = numbers_of(shard_.heads.query_heads, dim());
        const dist::Slice keys = numbers_of(shard_.heads.kv_heads, dim());
        const StoredTensor& query = matrix(stems_.cross_query, query_size, width, config_.qkv_bias);
        const StoredTensor& key = matrix(stems_.cross_key, query_size, width, config_.qkv_bias);
        const StoredTensor& value = matrix(stems_.cross_value, query_size, width, config_.qkv_bias);
        const StoredTensor& output = matrix(stems_.cross_output, width, query_size, config_.output_bias);
        add(Role::cross_query, {{&query, queries}}, hidden());
        add(Role::cross_key_value, {{&key, keys}, {&value, keys}}, hidden()).reading = Reading::once_a_source;
        add(Role::cross_output, {{&output, hidden()}}, queries, Split::rows);
    }

    void mlp() {
        const std::int64_t width = config_.hidden_size, inner = config_.intermediate_size;
        const dist::Slice own = shard_.mlp;
        if (!stems_.gate_up.empty()) {
            const StoredTensor& both = matrix(stems_.gate_up, 2 * inner, width, config_.mlp_bias);
            add(Role::gate, {{&both, own}}, hidden());
            add(Role::up, {{&both, {inner + own.begin, inner + own.end}}}, hidden());
        } else {
            if (config_.gated_mlp)
                add(Role::gate, {{&matrix(stems_.gate, inner, width, config_.mlp_bias), own}}, hidden());
            add(Role::up, {{&matrix(stems_.up, inner, width, config_.mlp_bias), own}}, hidden());
        }
        add(Role::down, {{&matrix(stems_.down, width, inner, config_.mlp_bias), hidden()}}, own, Split::rows);
    }

    void router_and_shared_expert() {
        const ExpertsConfig& experts = config_.experts;
        const std::int64_t width = config_.hidden_size;
        const dist::Slice own = shard_.shared_expert;
        if (experts.shared_size > 0) {
            add(Role::gate, {{&matrix(stems_.shared_gate, experts.shared_size, width), own}}, hidden());
            add(Role::up, {{&matrix(stems_.shared_up, experts.shared_size, width), own}}, hidden());
            add(Role::down, {{&matrix(stems_.shared_down, width, experts.shared_size), hidden()}}, own, Split::rows);
        }
        const StoredTensor& router = matrix(stems_.router, experts.n_experts, width, experts.has_router_bias);
        PlannedMatrix& planned = add(Role::router, {{&router, {0, experts.n_experts}}}, hidden(), Split::whole);
        if (experts.gated_shared) planned.rows.push_back({&matrix(stems_.shared_scale, 1, width), {0, 1}});
        if (!stems_.router_correction.empty())
            vector(Role::router_correction, whole(stems_.router_correction, experts.n_experts), {}, experts.n_experts);
    }

    // ---- an expert ----

    void expert_of_its_own(const std::string& prefix) {
        const ExpertStems& stems = names_.stems.expert;
        const std::int64_t inner = config_.experts.intermediate_size, width = config_.hidden_size;
        const bool has_bias = config_.experts.has_biases;
        const auto named = [&](std::string_view stem, std::int64_t outputs,
                               std::int64_t inputs) -> const StoredTensor& {
            return stored(tensor_names(prefix, stem, has_bias), matrix_shape(outputs, inputs), Content::matrix,
                          {outputs});
        };
        add_expert({&named(stems.gate, inner, width), shard_.expert}, {&named(stems.up, inner, width), shard_.expert},
                   {&named(stems.down, width, inner), hidden()}, transposed_);
    }

    // All experts are in one tensor, [n_experts, out, in], whose rows lie one after the other.
    void expert_of_all(int expert) {
        const ExpertsConfig& experts = config_.experts;
        const std::int64_t inner = experts.intermediate_size, width = config_.hidden_size, n = experts.n_experts;
        const bool transposed = names_.transposed_experts;
        const auto named = [&](std::string_view name, std::int64_t outputs,
                               std::int64_t inputs) -> const StoredTensor& {
            TensorNames names = {prefix_ + std::string(name), ""};
            if (experts.has_biases) names.bias = names.weight + "_bias";
            return stored(names, transposed ? Shape{n, inputs, outputs} : Shape{n, outputs, inputs}, Content::matrix,
                          {n, outputs});
        };
        const StoredTensor& gate_up = named(stems_.expert_gate_up, 2 * inner, width);
        const std::int64_t step = experts.alternates ? 2 : 1, gate = 2 * inner * expert;
        const auto slice = [&](std::int64_t first) {
            const std::int64_t begin = first + step * shard_.expert.begin;
            return StoredSlice{&gate_up, {begin, begin + shard_.expert.size()}, step};
        };
        add_expert(slice(gate), slice(gate + (experts.alternates ? 1 : inner)),
                   {&named(stems_.expert_down, width, inner), {width * expert, width * (expert + 1)}}, transposed);
    }

    // ---- around the layers ----

    void embedding_and_head() {
        const std::int64_t width = config_.hidden_size, narrow = config_.embedding_size;
        const dist::Slice embedded = {0, narrow};
        const TensorStems& stems = names_.stems;
        if (narrow != width) add(Role::project_out, {{&outer(stems.project_out, {narrow, width}), embedded}}, hidden());
        if (config_.has_embedding()) {
            const StoredTensor& embedding = stored(names_.embedding, {config_.vocab_size, narrow}, Content::matrix);
            add(Role::embedding, {{&embedding, shard_.looked_up}}, embedded);
        }
        const TensorNames& head = names_.head;
        const int n_stored = config_.picks_outputs ? config_.vocab_size : config_.n_outputs();
        if (config_.has_head()) {
            const std::string& name = config_.tied_embeddings ? names_.embedding.weight : head.weight;
            const StoredTensor& matrix = stored({name, ""}, {n_stored, narrow}, Content::matrix);
            std::vector<StoredSlice> rows;
            for (const dist::Slice& slice : head_rows())
                rows.push_back({&matrix, slice});
            add(Role::head, std::move(rows), embedded);
        }
        if (narrow != width) add(Role::project_in, {{&outer(stems.project_in, {width, narrow}), hidden()}}, embedded);
        if (!head.bias.empty()) {
            const StoredTensor& bias = stored({head.bias, ""}, {n_stored}, Content::vector);
            vector(Role::head_bias, bias, head_rows(), shard_.outputs.size());
        }
        if (config_.embedding_norm) norm(Role::embedding_norm, stems.embedding_norm);
        if (config_.final_norm)
            if (PlannedVector* planned = norm(Role::final_norm, stems.final_norm))
                planned->scale = config_.output_scale;
    }

    // Returns the stored rows of this rank's outputs.
    std::vector<dist::Slice> head_rows() const {
        if (!config_.picks_outputs) return {shard_.outputs};
        std::vector<dist::Slice> rows;
        for (std::int64_t i = shard_.outputs.begin; i < shard_.outputs.end; ++i) {
            const std::int64_t token = config_.output_tokens[i];
            if (rows.empty() || rows.back().end != token) rows.push_back({token, token});
            ++rows.back().end;
        }
        return rows;
    }

    void position_tables() {
        const std::int64_t rows = std::int64_t{config_.max_positions} + config_.position_offset;
        if (!names_.positions.weight.empty()) {
            const StoredTensor& table = stored(names_.positions, {rows, config_.hidden_size}, Content::matrix);
            vector(Role::positions, table, {}, rows * config_.hidden_size);
        } else if (config_.positions == Positions::sinusoidal) {
            plan_.vectors.push_back({Role::positions});
        }
        if (config_.positions != Positions::relative || names_.stems.relative_bias.empty()) return;
        const std::int64_t n_buckets = config_.relative.n_buckets;
        vector(Role::relative_biases, outer(names_.stems.relative_bias, {n_buckets, config_.n_heads}), {},
               n_buckets * shard_.n_query_heads());
    }

    // heads/*.cpp give these names; families do not have such tensors.
    void fusion() {
        const FusionConfig& fusion = config_.fusion;
        const std::int64_t width = config_.hidden_size, joined = fusion.joined_size(config_.hidden_size);
        const bool is_lstm = fusion.kind == Fusion::lstm, is_concat = fusion.kind == Fusion::concat;
        for (int i = 0; i < fusion.n_feature_norms; ++i)
            feature_norm(i);
        project_features(is_lstm);
        if (fusion.kind == Fusion::linear || is_concat)
            add(Role::fusion, {{&matrix("fusion", width, joined, fusion.has_bias), hidden()}}, {0, joined});
        if (is_concat) add(Role::skip, {{&matrix("skip", width, joined, fusion.has_bias), hidden()}}, {0, joined});
        if (fusion.kind == Fusion::sum || is_lstm) norm(Role::sum_norm, "sum_norm", width, true);
        if (is_lstm) norm(Role::cell_norm, "cell_norm", width, true);
        if (fusion.norms_embedding) norm(Role::fused_embedding_norm, "embedding_norm");
        if (fusion.norms_state) norm(Role::state_norm, "state_norm");
        for (int i = 0; i < fusion.n_cells; ++i)
            cell(i, i == 0 ? joined : width);
        const std::int64_t inner = fusion.residual_size > 0 ? fusion.residual_size : width;
        const auto residual = [&](Role role, const char* name, int i, std::int64_t outputs, std::int64_t inputs) {
            const StoredTensor& of = matrix(fmt::format("{}.{}", name, i), outputs, inputs, fusion.residual_bias);
            add(role, {{&of, {0, outputs}}}, {0, inputs});
        };
        for (int i = 0; i < fusion.n_residual_blocks; ++i) {
            residual(Role::residual_block, "residual_blocks", i, inner, width);
            if (fusion.residual_size > 0) residual(Role::residual_output, "residual_outputs", i, width, inner);
        }
    }

  private:
    // ---- rows of attention's first matrix ----

    std::vector<StoredSlice> separate_rows(std::int64_t input) {
        const std::int64_t query_size = config_.n_heads * dim(), key_size = config_.n_kv_heads * dim();
        const bool gated = config_.gated_attention, has_bias = config_.qkv_bias;
        const StoredTensor& query = matrix(stems_.query, gated ? 2 * query_size : query_size, input, has_bias);
        const StoredTensor& key = matrix(stems_.key, key_size, input, has_bias);
        const StoredTensor& value = matrix(stems_.value, key_size, input, has_bias);
        const dist::Slice queries = shard_.heads.query_heads, keys = numbers_of(shard_.heads.kv_heads, dim());
        std::vector<StoredSlice> rows, gates; // gated attention: each head's queries are stored before its gate
        if (!gated) rows = {{&query, numbers_of(queries, dim())}};
        for (std::int64_t head = queries.begin; gated && head < queries.end; ++head) {
            rows.push_back({&query, numbers_of({2 * head, 2 * head + 1}, dim())});
            gates.push_back({&query, numbers_of({2 * head + 1, 2 * head + 2}, dim())});
        }
        rows.push_back({&key, keys});
        rows.push_back({&value, keys});
        rows.insert(rows.end(), gates.begin(), gates.end());
        return rows;
    }

    std::vector<StoredSlice> fused_rows(std::int64_t input) {
        const dist::HeadShard& heads = shard_.heads;
        const std::int64_t n_queries = config_.n_heads, n_keys = config_.n_kv_heads, group = n_queries / n_keys;
        const StoredTensor& qkv = matrix(stems_.qkv, (n_queries + 2 * n_keys) * dim(), input, config_.qkv_bias);
        const auto heads_from = [&](std::int64_t first, dist::Slice of) {
            return StoredSlice{&qkv, numbers_of({first + of.begin, first + of.end}, dim())};
        };
        if (names_.stems.qkv == QkvForm::stacked)
            return {heads_from(0, heads.query_heads), heads_from(n_queries, heads.kv_heads),
                    heads_from(n_queries + n_keys, heads.kv_heads)};
        std::vector<StoredSlice> rows;
        for (std::int64_t head = heads.query_heads.begin; head < heads.query_heads.end;) {
            const std::int64_t key = head / group, end = std::min((key + 1) * group, heads.query_heads.end);
            rows.push_back(heads_from(2 * key, {head, end}));
            head = end;
        }
        for (const std::int64_t which : {0, 1}) // key, value
            for (std::int64_t key = heads.kv_heads.begin; key < heads.kv_heads.end; ++key)
                rows.push_back(heads_from(key * (group + 2) + group + which, {0, 1}));
        return rows;
    }

    // The rows are stored in the order in which they are held.
    std::vector<StoredSlice> grouped_linear_rows() {
        const LinearAttentionConfig& linear = config_.linear;
        const std::int64_t group = linear.group(), n_keys = linear.n_key_heads, width = config_.hidden_size;
        const std::int64_t of_head = linear.convolved_size() + group * linear.value_dim;
        const StoredTensor& in = matrix(stems_.linear_in, n_keys * of_head, width);
        const StoredTensor& gates = matrix(stems_.linear_gates, 2 * linear.n_value_heads, width);
        return {{&in, numbers_of(shard_.linear_keys, of_head)}, {&gates, numbers_of(shard_.linear_keys, 2 * group)}};
    }

    std::vector<StoredSlice> separate_linear_rows() {
        const LinearAttentionConfig& linear = config_.linear;
        const std::int64_t group = linear.group(), width = config_.hidden_size, values = group * linear.value_dim;
        const std::int64_t n_keys = std::int64_t{linear.n_key_heads} * linear.key_dim;
        const std::int64_t n_heads = linear.n_value_heads, all_values = n_heads * linear.value_dim;
        const StoredTensor& qkv = matrix(stems_.linear_qkv, 2 * n_keys + all_values, width);
        const StoredTensor& gates = matrix(stems_.linear_value_gates, all_values, width);
        const StoredTensor& steps = matrix(stems_.linear_steps, n_heads, width);
        const StoredTensor& decays = matrix(stems_.linear_decays, n_heads, width);
        std::vector<StoredSlice> rows;
        const dist::Slice keys = shard_.linear_keys;
        for (std::int64_t head = keys.begin; head < keys.end; ++head) {
            const std::int64_t key = head * linear.key_dim, value = head * values;
            rows.push_back({&qkv, {key, key + linear.key_dim}});
            rows.push_back({&qkv, {n_keys + key, n_keys + key + linear.key_dim}});
            rows.push_back({&qkv, {2 * n_keys + value, 2 * n_keys + value + values}});
            rows.push_back({&gates, {value, value + values}});
        }
        for (std::int64_t head = keys.begin; head < keys.end; ++head)
            for (const StoredTensor* each : {&steps, &decays})
                rows.push_back({each, {head * group, (head + 1) * group}});
        return rows;
    }

    // ---- smaller parts ----

    void head_norms() {
        const bool of_row = config_.query_key_norm == QueryKeyNorm::row;
        const auto head_norm = [&](Role role, std::string_view stem, int n_heads, dist::Slice own) {
            PlannedVector* planned = norm(role, stem, of_row ? n_heads * dim() : dim(), false);
            if (planned == nullptr || !of_row) return;
            planned->parts = {numbers_of(own, dim())};
            planned->floats = planned->parts.front().size();
        };
        head_norm(Role::query_norm, stems_.query_norm, config_.n_heads, shard_.heads.query_heads);
        head_norm(Role::key_norm, stems_.key_norm, config_.n_kv_heads, shard_.heads.kv_heads);
    }

    void sinks() {
        if (!config_.has_sinks) return;
        const dist::Slice own = shard_.heads.query_heads;
        vector(Role::sinks, whole(stems_.sinks, config_.n_heads), {own}, own.size());
    }

    void output() {
        const std::int64_t of_head = config_.attended_dim();
        const StoredTensor& output =
            matrix(stems_.output, config_.hidden_size, config_.n_heads * of_head, config_.output_bias);
        add(Role::output, {{&output, hidden()}}, numbers_of(shard_.heads.query_heads, of_head), Split::rows);
    }

    void add_expert(StoredSlice gate, StoredSlice up, StoredSlice down, bool transposed) {
        const auto planned = [&](Role role, StoredSlice rows, dist::Slice inputs, Split split) {
            PlannedMatrix& matrix = add(role, {rows}, inputs, split);
            matrix.transposed = transposed;
            matrix.reading = Reading::chosen_experts;
        };
        planned(Role::expert_gate, gate, hidden(), Split::columns);
        planned(Role::expert_up, up, hidden(), Split::columns);
        planned(Role::expert_down, down, shard_.expert, Split::rows);
        plan_.matrices.back().adds_bias = shard_.is_first;
    }

    void feature_norm(int i) {
        const FusionConfig& fusion = config_.fusion;
        const bool has_bias = fusion.feature_norm == Norm::layer;
        PlannedVector* planned =
            norm(Role::feature_norm, fmt::format("feature_norm.{}", i), fusion.feature_norm_size, has_bias);
        planned->norm = fusion.feature_norm;
        planned->epsilon = fusion.feature_norm_epsilon;
        planned->offset = fusion.feature_norm_offset;
    }

    void project_features(bool is_lstm) {
        std::vector<std::string> stems;
        if (is_lstm)
            stems = {"forget_projection", "input_projection", "output_projection", "cell_projection"};
        else if (config_.fusion.projects_features)
            stems = {"feature_projection"};
        if (stems.empty()) return;
        const std::int64_t inputs = config_.fusion.feature_numbers();
        std::vector<StoredSlice> rows;
        for (const std::string& stem : stems)
            rows.push_back({&matrix(stem, config_.hidden_size, inputs), hidden()});
        add(Role::feature_projection, rows, {0, inputs});
    }

    // A forget gate has nothing to forget: the state before a cell is zeros.
    void cell(int i, std::int64_t inputs) {
        const std::int64_t width = config_.hidden_size;
        const std::string name = fmt::format("cells.{}", i);
        TensorNames names = tensor_names(prefix_, name, config_.fusion.has_bias);
        if (config_.fusion.has_bias) names.second_bias = prefix_ + name + ".state_bias";
        const StoredTensor& gates = stored(names, {4 * width, inputs}, Content::matrix, {4 * width});
        add(Role::cell, {{&gates, {0, width}}, {&gates, {2 * width, 4 * width}}}, {0, inputs});
    }

    // ---- helpers of all of these ----

    std::int64_t dim() const { return config_.head_dim; }
    dist::Slice hidden() const { return {0, config_.hidden_size}; }
    static dist::Slice numbers_of(dist::Slice heads, std::int64_t of_head) {
        return {heads.begin * of_head, heads.end * of_head};
    }
    Shape matrix_shape(std::int64_t outputs, std::int64_t inputs) const {
        return transposed_ ? Shape{inputs, outputs} : Shape{outputs, inputs};
    }

    const StoredTensor& stored(TensorNames names, Shape shape, Content content, Shape bias_shape = {}) {
        plan_.stored.push_back(std::make_unique<const StoredTensor>(
            StoredTensor{std::move(names), std::move(shape), std::move(bias_shape), content}));
        return *plan_.stored.back();
    }
    const StoredTensor& matrix(std::string_view stem, std::int64_t outputs, std::int64_t inputs,
                               bool has_bias = false) {
        return stored(tensor_names(prefix_, stem, has_bias), matrix_shape(outputs, inputs), Content::matrix, {outputs});
    }
    const StoredTensor& outer(std::string_view stem, Shape shape) {
        return stored(tensor_names(prefix_, stem, false), std::move(shape), Content::matrix);
    }
    const StoredTensor& whole(std::string_view name, std::int64_t size) {
        return stored({prefix_ + std::string(name), ""}, {size}, Content::vector);
    }

    PlannedMatrix& add(Role role, std::vector<StoredSlice> rows, dist::Slice inputs, Split split = Split::columns) {
        plan_.matrices.push_back({role, std::move(rows), inputs, transposed_, split});
        plan_.matrices.back().adds_bias = split != Split::rows || shard_.is_first;
        return plan_.matrices.back();
    }

    PlannedVector& vector(Role role, const StoredTensor& tensor, std::vector<dist::Slice> parts, std::int64_t floats) {
        plan_.vectors.push_back({role, &tensor, std::move(parts), floats});
        return plan_.vectors.back();
    }
    PlannedVector* norm(Role role, std::string_view stem) {
        return norm(role, stem, config_.hidden_size, norm_has_bias(config_));
    }
    // Returns null where the family has none.
    PlannedVector* norm(Role role, std::string_view stem, std::int64_t width, bool has_bias) {
        if (stem.empty()) return nullptr;
        const StoredTensor& tensor = stored(tensor_names(prefix_, stem, has_bias), {width}, Content::norm, {width});
        PlannedVector& planned = vector(role, tensor, {}, has_bias ? 2 * width : width);
        planned.norm = config_.norm;
        planned.epsilon = config_.norm_epsilon;
        planned.offset = config_.norm_offset;
        return &planned;
    }

    const ModelConfig& config_;
    const ModelNames& names_;
    const LayerStems& stems_;
    const RankShard& shard_;
    std::string prefix_;
    bool transposed_;
    TensorPlan plan_;
};

// Sums over all layers of a model and the tensors around them.
std::int64_t sum_of_plans(const ModelConfig& config, const RankShard& shard, std::int64_t experts_of_layer,
                          std::int64_t (TensorPlan::*of_plan)() const) {
    const ModelNames names = names_of(config, Checkpoint());
    std::int64_t sum = (plan_outer(config, names, shard).*of_plan)();
    for (const LayerKind& kind : layer_kinds(config)) {
        sum += kind.count * (plan_layer(config, names, kind.layer, shard).*of_plan)();
        if (kind.has_experts)
            sum += kind.count * experts_of_layer * (plan_expert(config, names, kind.layer, 0, shard).*of_plan)();
    }
    return sum;
}

std::int64_t count_parameters(const ModelConfig& config, int experts_of_layer) {
    const RankShard whole = shard_of(config, 0, 1);
    const std::int64_t of_encoder = config.has_encoder() ? parameter_count(encoder_of(config)) : 0;
    return sum_of_plans(config, whole, experts_of_layer, &TensorPlan::numbers) +
           sum_of_plans(config, whole, experts_of_layer, &TensorPlan::floats) + of_encoder;
}

} // namespace

MatrixShape PlannedMatrix::shape() const {
    std::int64_t outputs = 0;
    for (const StoredSlice& slice : rows)
        outputs += slice.rows.size();
    // A matrix whose inputs are not shared between ranks counts them from its own first one.
    return {static_cast<int>(outputs), static_cast<int>(inputs.size()), split == Split::rows ? inputs.begin : 0};
}

bool PlannedMatrix::has_bias() const {
    return adds_bias &&
           std::ranges::all_of(rows, [](const StoredSlice& slice) { return !slice.tensor->names.bias.empty(); });
}

std::int64_t TensorPlan::floats() const {
    std::int64_t sum = 0;
    for (const PlannedVector& vector : vectors)
        sum += vector.floats;
    for (const PlannedMatrix& matrix : matrices)
        if (matrix.has_bias()) sum += matrix.shape().outputs;
    return sum;
}

std::int64_t TensorPlan::numbers() const {
    std::int64_t sum = 0;
    for (const PlannedMatrix& matrix : matrices)
        sum += std::int64_t{matrix.shape().outputs} * matrix.shape().inputs;
    return sum;
}

TensorPlan plan_outer(const ModelConfig& config, const ModelNames& names, const RankShard& shard) {
    Planner planner(config, names, shard, names.prefix, false);
    planner.embedding_and_head();
    planner.position_tables();
    planner.fusion();
    return planner.take();
}

TensorPlan plan_layer(const ModelConfig& config, const ModelNames& names, int layer, const RankShard& shard) {
    Planner planner(config, names, shard, names.layer_prefix(layer), names.stems.transposed);
    const FusionConfig& fusion = config.fusion;
    planner.layer_norms(layer > 0 || (fusion.kind != Fusion::attention && fusion.first_attention_norm));
    if (config.is_linear(layer))
        planner.linear_attention();
    else if (config.is_latent())
        planner.latent_attention();
    else
        planner.attention(layer);
    if (config.has_encoder()) planner.cross_attention();
    config.has_experts(layer) ? planner.router_and_shared_expert() : planner.mlp();
    return planner.take();
}

TensorPlan plan_expert(const ModelConfig& config, const ModelNames& names, int layer, int expert,
                       const RankShard& shard) {
    Planner planner(config, names, shard, names.layer_prefix(layer), names.stems.transposed);
    names.has_joint_experts ? planner.expert_of_all(expert)
                            : planner.expert_of_its_own(names.expert_prefix(layer, expert));
    return planner.take();
}

std::vector<LayerKind> layer_kinds(const ModelConfig& config) {
    std::set<int> listed = {0}; // layers that may differ from the rest
    listed.insert(config.linear.layers.begin(), config.linear.layers.end());
    listed.insert(config.experts.dense_layers.begin(), config.experts.dense_layers.end());
    int rest = 0; // the first layer that is not listed
    while (listed.contains(rest))
        ++rest;
    std::map<std::tuple<bool, bool, bool>, LayerKind> kinds;
    const auto count = [&](int layer, std::int64_t n) {
        if (layer >= config.n_layers || n <= 0) return;
        const bool has_experts = config.has_experts(layer);
        const std::tuple alike = {layer == 0, config.is_linear(layer), has_experts};
        kinds.try_emplace(alike, LayerKind{layer, 0, has_experts}).first->second.count += n;
    };
    std::int64_t n_listed = 0;
    for (const int layer : listed) {
        count(layer, 1);
        n_listed += layer < config.n_layers ? 1 : 0;
    }
    count(rest, config.n_layers - n_listed);
    std::vector<LayerKind> all;
    for (const auto& [alike, kind] : kinds)
        all.push_back(kind);
    return all;
}

int attention_input_size(const ModelConfig& config, int layer) {
    return config.fusion.kind == Fusion::attention && layer == 0 ? 2 * config.hidden_size : config.hidden_size;
}

std::int64_t float_count(const ModelConfig& config, const RankShard& shard) {
    return sum_of_plans(config, shard, config.experts.n_experts, &TensorPlan::floats);
}

std::int64_t parameter_count(const ModelConfig& config) {
    return count_parameters(config, config.experts.n_experts);
}

std::int64_t active_parameter_count(const ModelConfig& config) {
    return count_parameters(config, config.experts.n_chosen);
}

} // namespace entrodraft::model
