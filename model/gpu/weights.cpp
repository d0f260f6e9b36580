#include "model/gpu/weights.h"

#include "model/files/bad_file.h"
#include "model/gpu/uploader.h"
#include "model/weights/planned_values.h"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace entrodraft::model::gpu {

namespace {

WeightType weight_type(NumberType type) {
    switch (type) {
    case NumberType::float32:
        return WeightType::float32;
    case NumberType::bfloat16:
        return WeightType::bfloat16;
    case NumberType::float16:
        return WeightType::float16;
    }
    throw std::invalid_argument("a number type that no matrix is held in");
}

// Returns kGateGroup gates and kGateGroup ups by turns, as for Epilogue::gate, padded to whole groups.
template <typename T> std::vector<T> by_turns(const std::vector<T>& gates, const std::vector<T>& ups) {
    std::vector<T> all;
    for (std::size_t begin = 0; begin < gates.size(); begin += kGateGroup)
        for (const std::vector<T>* of : {&gates, &ups})
            for (std::size_t i = begin; i < begin + kGateGroup; ++i)
                all.push_back(i < of->size() ? (*of)[i] : T{});
    return all;
}

template <typename T> void append(const std::vector<T>& more, std::vector<T>& to) {
    to.insert(to.end(), more.begin(), more.end());
}

// Fills a layer, or the tensors around the layers, from their plans.
class Loader {
  public:
    Loader(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard, WeightType activations,
           WeightType multiplied, Uploader& uploader)
        : checkpoint_(checkpoint), config_(config), shard_(shard), activations_(activations), multiplied_(multiplied),
          uploader_(uploader) {}

    // `plans`: a layer's and its experts', or one plan. `is_linear`: the layer has linear attention.
    void load(const std::vector<TensorPlan>& plans, bool is_linear, DeviceTensors& to) {
        std::map<Role, Sources> by_role;
        for (const TensorPlan& plan : plans) {
            for (const PlannedMatrix& matrix : plan.matrices)
                by_role[matrix.role].push_back(&matrix);
            for (const PlannedVector& vector : plan.vectors)
                to.vectors(vector.role).push_back(upload(vector));
        }
        const Sources gates = by_role[Role::gate], expert_gates = by_role[Role::expert_gate];
        for (const auto& [role, sources] : by_role) {
            std::vector<DeviceMatrix>& matrices = to.all(role);
            switch (role) {
            case Role::embedding: // see head_and_embedding()
            case Role::head:
            case Role::gate: // is in Role::up
            case Role::expert_gate:
                break;
            case Role::up:
                matrices.push_back(wide(gates, sources));
                break;
            case Role::expert_up:
                matrices.push_back(wide(expert_gates, sources));
                break;
            case Role::expert_down:
                matrices.push_back(joined(sources, false));
                break;
            case Role::router:
            case Role::absorb:
            case Role::expand:
                matrices.push_back(joined(sources, true));
                break;
            case Role::qkv:
                matrices.push_back(is_linear ? linear_in(*sources.front()) : joined(sources, false));
                break;
            default:
                for (const PlannedMatrix* source : sources)
                    matrices.push_back(joined({source}, false));
            }
        }
    }

    void head_and_embedding(const TensorPlan& plan, DeviceWeights& to) {
        const auto find = [&](Role role) {
            const auto found = std::ranges::find(plan.matrices, role, &PlannedMatrix::role);
            return found == plan.matrices.end() ? PlannedMatrix() : *found;
        };
        const PlannedMatrix embedding = find(Role::embedding);
        PlannedMatrix head = find(Role::head);
        const bool is_tied = head.rows.empty() && !config_.is_encoder;
        const bool has_codes =
            is_scaled(multiplied_) ||
            (config_.quantization &&
             std::ranges::any_of(embedding.rows, [&](const StoredSlice& slice) { return is_code(slice); }));
        to.embedding_is_head = is_tied && !has_codes && shard_.looked_up == shard_.vocab;
        if (is_tied && !to.embedding_is_head) {
            head = embedding;
            for (StoredSlice& slice : head.rows)
                slice.rows = shard_.vocab;
        }
        to.outer.all(Role::embedding).push_back(joined({&embedding}, true));
        to.outer.all(Role::head).push_back(joined({&head}, false));
    }

  private:
    using Sources = std::vector<const PlannedMatrix*>;

    bool is_code(const StoredSlice& slice) const {
        return checkpoint_.tensor(slice.tensor->names.weight).type == DiskType::quantized;
    }
    StoredRows rows_of(const PlannedMatrix& source) const {
        StoredRows rows;
        uploader_.append(source, rows);
        return rows;
    }
    DeviceNorm upload(const PlannedVector& vector) const {
        const VectorValues values = read_planned(checkpoint_, config_, shard_, vector);
        return {uploader_.vector(values.weight), uploader_.vector(values.bias), vector.norm, vector.epsilon};
    }

    // Joins matrices with the same inputs, one after another. `is_plain`: in the activations' type.
    DeviceMatrix joined(const Sources& sources, bool is_plain) {
        StoredRows rows;
        std::vector<float> biases;
        for (const PlannedMatrix* source : sources) {
            uploader_.append(*source, rows);
            append(read_biases(checkpoint_, *source), biases);
        }
        const dist::Slice inputs = sources.front()->inputs;
        DeviceMatrix matrix =
            is_plain ? uploader_.plain_matrix(rows, inputs, activations_) : uploader_.matrix(rows, inputs, multiplied_);
        matrix.bias = uploader_.vector(biases);
        return matrix;
    }

    // Joins an MLP's gates and ups, or those of experts, one after another. Without gates: ups alone.
    DeviceMatrix wide(const Sources& gates, const Sources& ups) {
        if (gates.empty()) return joined(ups, false);
        StoredRows rows;
        std::vector<float> biases;
        for (std::size_t i = 0; i < ups.size(); ++i) {
            append(by_turns(rows_of(*gates[i]), rows_of(*ups[i])), rows);
            append(by_turns(read_biases(checkpoint_, *gates[i]), read_biases(checkpoint_, *ups[i])), biases);
        }
        DeviceMatrix matrix = uploader_.matrix(rows, ups.front()->inputs, multiplied_);
        matrix.bias = uploader_.vector(biases);
        return matrix;
    }

    // Linear attention: FP8 files may hold the gates unquantised, after quantised matrices.
    DeviceMatrix linear_in(PlannedMatrix source) {
        const auto gates = std::find_if(source.rows.rbegin(), source.rows.rend(), [&](const StoredSlice& slice) {
                               return is_code(slice);
                           }).base();
        if (gates == source.rows.begin() || gates == source.rows.end()) return joined({&source}, false);
        PlannedMatrix last = source;
        last.rows.assign(gates, source.rows.end());
        source.rows.erase(gates, source.rows.end());
        DeviceMatrix all = joined({&source}, false);
        all.last.push_back(joined({&last}, false));
        return all;
    }

    const Checkpoint& checkpoint_;
    const ModelConfig& config_;
    const RankShard& shard_;
    WeightType activations_, multiplied_;
    Uploader& uploader_;
};

// Counts what a pass of one row reads, without padding.
void count_work(const ModelConfig& config, DeviceWeights& weights) {
    const double chosen = static_cast<double>(config.experts.n_chosen) / std::max(1, config.experts.n_experts);
    const auto count = [&](const DeviceMatrix& matrix, int outputs, double share = 1) {
        const std::size_t bytes = matrix.numbers.size() + matrix.scales.size();
        weights.bytes_per_pass += static_cast<std::size_t>(static_cast<double>(bytes) * share);
        weights.operations_per_row += 2.0 * outputs * matrix.k * share;
    };
    const auto count_all = [&](const DeviceTensors& tensors, std::initializer_list<Role> roles) {
        for (const Role role : roles)
            for (const DeviceMatrix& matrix : tensors.all(role))
                count(matrix, matrix.n);
    };
    count(weights.head(), weights.head().n);
    count_all(weights.outer, {Role::project_in, Role::project_out, Role::feature_projection, Role::fusion, Role::skip,
                              Role::cell, Role::residual_block, Role::residual_output});
    for (const DeviceTensors& layer : weights.layers) {
        count_all(layer, {Role::qkv, Role::output, Role::down, Role::cross_query, Role::cross_output, Role::router,
                          Role::query_up, Role::absorb, Role::expand});
        for (const DeviceMatrix& gates : layer[Role::qkv].last)
            count(gates, gates.n);
        const DeviceMatrix& expert_down = layer[Role::expert_down];
        count(layer[Role::expert_up], 2 * config.experts.n_experts * expert_down.k, chosen);
        count(expert_down, expert_down.n, chosen);
        count(layer[Role::up], (config.gated_mlp ? 2 : 1) * layer[Role::down].k);
    }
}

} // namespace

DeviceWeights::DeviceWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                             NumberType number_type, WeightType multiplied,
                             const std::function<void(std::size_t, std::size_t)>& progress)
    : type(number_type) {
    const ModelNames names = names_of(config, checkpoint);
    Uploader uploader(checkpoint, config.quantization.has_value());
    Loader loader(checkpoint, config, shard, weight_type(type), multiplied, uploader);
    layers.resize(static_cast<std::size_t>(config.n_layers));
    for (int i = 0; i < config.n_layers; ++i) {
        std::vector<TensorPlan> plans;
        plans.push_back(plan_layer(config, names, i, shard));
        for (int expert = 0; config.has_experts(i) && expert < config.experts.n_experts; ++expert)
            plans.push_back(plan_expert(config, names, i, expert, shard));
        loader.load(plans, config.is_linear(i), layers[i]);
        const auto done = static_cast<std::size_t>(i + 1), all = static_cast<std::size_t>(config.n_layers) + 1;
        if (progress) progress(checkpoint.total_bytes() * done / all, checkpoint.total_bytes());
    }
    std::vector<TensorPlan> plans;
    plans.push_back(plan_outer(config, names, shard));
    loader.load(plans, false, outer);
    loader.head_and_embedding(plans.front(), *this);
    if (config.fusion.features_scale != 0) {
        const auto width = static_cast<std::size_t>(config.fusion.feature_numbers());
        feature_scale.weight = uploader.vector(std::vector<float>(width, config.fusion.features_scale));
        feature_scale.epsilon = FusionConfig::kScaleEpsilon;
    }
    widest_order = uploader.widest_order();
    if (widest_order > 0 && (config.n_expert_layers() > 0 || config.has_encoder() || config.is_encoder))
        throw BadFile(
            "inputs in an order of their own (GPTQ's act-order), of experts and of models with an encoder, are "
            "for CPUs alone: give --device cpu");
    if (progress) progress(checkpoint.total_bytes(), checkpoint.total_bytes());
    count_work(config, *this);
}

} // namespace entrodraft::model::gpu
