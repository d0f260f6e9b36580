#include "model/weights/tensor_shapes.h"

#include "model/files/bad_file.h"
#include "model/weights/rank_shard.h"

#include <cstdint>
#include <fmt/format.h>
#include <set>
#include <vector>

namespace entrodraft::model {
namespace {

using Shape = std::vector<std::int64_t>;

enum class TensorRole { matrix, norm, plain_norm, bias }; // a plain norm is stored without the offset

// Visits all tensors that the config calls for, one by one.
class TensorVisit {
  public:
    using Function = std::function<void(const std::string& name, const Shape& shape, TensorRole role)>;
    TensorVisit(const ModelConfig& config, const ModelNames& names, Function visit)
        : config_(config), names_(names), visit_(std::move(visit)) {}

    void all() const {
        const std::int64_t hidden = config_.hidden_size, embedding = config_.embedding_size;
        if (config_.has_embedding()) one(names_.embedding.weight, {config_.vocab_size, embedding}, TensorRole::matrix);
        one(names_.positions.weight, {config_.max_positions + config_.position_offset, hidden}, TensorRole::matrix);
        norm(names_.embedding_norm, hidden);
        one(names_.relative_bias.weight, {config_.relative.n_buckets, config_.n_heads}, TensorRole::matrix);
        one(names_.project_in.weight, {hidden, embedding}, TensorRole::matrix);
        one(names_.project_out.weight, {embedding, hidden}, TensorRole::matrix);
        norm(names_.final_norm, hidden);
        if (config_.has_head()) one(names_.head.weight, {config_.n_outputs(), embedding}, TensorRole::matrix);
        one(names_.head.bias, {config_.n_outputs()}, TensorRole::bias);
        fusion();
        for (int i = 0; i < config_.n_layers; ++i) {
            const LayerNames names = names_.layer(i);
            layer(names, attention_input_size(config_, i));
            if (config_.has_experts(i)) experts(names, i);
        }
    }

  private:
    void one(const std::string& name, const Shape& shape, TensorRole role) const {
        if (!name.empty()) visit_(name, shape, role);
    }
    void norm(const TensorNames& names, std::int64_t width) const {
        one(names.weight, {width}, TensorRole::norm);
        one(names.bias, {width}, TensorRole::bias);
    }
    // A matrix of a layer, [out, in] or the other way round.
    void matrix(const TensorNames& names, std::int64_t out, std::int64_t in) const {
        one(names.weight, names_.transposed ? Shape{in, out} : Shape{out, in}, TensorRole::matrix);
        one(names.bias, {out}, TensorRole::bias);
        one(names.second_bias, {out}, TensorRole::bias);
    }
    void fusion() const {
        const FusionNames& names = names_.fusion;
        const std::int64_t hidden = config_.hidden_size;
        for (const TensorNames& each : names.feature_norms)
            norm(each, config_.fusion.feature_norm_size);
        for (const TensorNames& each : names.feature_projections)
            matrix(each, hidden, config_.fusion.feature_numbers());
        matrix(names.linear, hidden, config_.fusion.joined_size(config_.hidden_size));
        matrix(names.skip, hidden, config_.fusion.joined_size(config_.hidden_size));
        norm(names.sum_norm, hidden);
        norm(names.cell_norm, hidden);
        norm(names.embedding_norm, hidden);
        norm(names.state_norm, hidden);
        for (std::size_t i = 0; i < names.cells.size(); ++i)
            matrix(names.cells[i], 4 * hidden, i == 0 ? config_.fusion.joined_size(config_.hidden_size) : hidden);
        const std::int64_t inner = config_.fusion.residual_size > 0 ? config_.fusion.residual_size : hidden;
        for (const TensorNames& each : names.residual_blocks)
            matrix(each, inner, hidden);
        for (const TensorNames& each : names.residual_outputs)
            matrix(each, hidden, inner);
    }
    void layer(const LayerNames& names, std::int64_t attention_input) const {
        const std::int64_t hidden = config_.hidden_size, inner = config_.intermediate_size, dim = config_.head_dim;
        const std::int64_t query = config_.n_heads * dim, key = config_.n_kv_heads * dim;
        const std::int64_t attended = config_.n_heads * config_.attended_dim();
        for (const TensorNames* each : {&names.attention_norm, &names.mlp_norm, &names.after_attention_norm,
                                        &names.after_mlp_norm, &names.cross_norm})
            norm(*each, hidden);
        for (const TensorNames* each : {&names.cross_query, &names.cross_key, &names.cross_value})
            matrix(*each, query, hidden);
        matrix(names.cross_output, hidden, query);
        const LatentConfig& latent = config_.latent;
        matrix(names.query, config_.gated_attention ? 2 * query : query,
               latent.query_rank > 0 ? latent.query_rank : attention_input);
        matrix(names.key, key, attention_input);
        matrix(names.value, key, attention_input);
        matrix(names.qkv, query + 2 * key, attention_input);
        const bool is_of_row = config_.query_key_norm == QueryKeyNorm::row;
        norm(names.query_norm, is_of_row ? query : dim);
        norm(names.key_norm, is_of_row ? key : dim);
        one(names.sinks.weight, {config_.n_heads}, TensorRole::bias);
        matrix(names.query_down, latent.query_rank, hidden);
        norm(names.query_down_norm, latent.query_rank);
        matrix(names.key_value_down, latent.rank + latent.rotated_dim, hidden);
        norm(names.key_value_down_norm, latent.rank);
        matrix(names.key_value_up, config_.n_heads * (latent.plain_dim + latent.value_dim), latent.rank);
        matrix(names.output, hidden, attended);
        linear_attention(names);
        matrix(names.gate, inner, hidden);
        matrix(names.up, inner, hidden);
        matrix(names.gate_up, 2 * inner, hidden);
        matrix(names.down, hidden, inner);
    }
    void linear_attention(const LayerNames& names) const {
        const LinearAttentionConfig& linear = config_.linear;
        const std::int64_t hidden = config_.hidden_size, keys = linear.n_key_heads, heads = linear.n_value_heads;
        const std::int64_t values = heads * linear.value_dim;
        matrix(names.linear_in, 2 * (keys * linear.key_dim + values), hidden);
        matrix(names.linear_gates, 2 * heads, hidden);
        matrix(names.linear_qkv, 2 * keys * linear.key_dim + values, hidden);
        matrix(names.linear_value_gates, values, hidden);
        matrix(names.linear_steps, heads, hidden);
        matrix(names.linear_decays, heads, hidden);
        one(names.linear_convolution.weight, {2 * keys * linear.key_dim + values, 1, linear.n_convolved},
            TensorRole::matrix);
        one(names.linear_decay.weight, {heads}, TensorRole::bias);
        one(names.linear_decay_bias.weight, {heads}, TensorRole::bias);
        one(names.linear_norm.weight, {linear.value_dim}, TensorRole::plain_norm);
        matrix(names.linear_output, hidden, values);
    }
    void experts(const LayerNames& names, int number) const {
        const ExpertsConfig& of = config_.experts;
        const std::int64_t hidden = config_.hidden_size, inner = of.intermediate_size, n = of.n_experts;
        matrix(names.router, n, hidden);
        one(names.router_correction.weight, {n}, TensorRole::bias);
        matrix(names.shared_gate, of.shared_size, hidden);
        matrix(names.shared_up, of.shared_size, hidden);
        matrix(names.shared_down, hidden, of.shared_size);
        matrix(names.shared_scale, 1, hidden);
        const auto all = [&](const TensorNames& stored, std::int64_t out, std::int64_t in) {
            one(stored.weight, names_.transposed_experts ? Shape{n, in, out} : Shape{n, out, in}, TensorRole::matrix);
            one(stored.bias, {n, out}, TensorRole::bias);
        };
        all(names.expert_gate_up, 2 * inner, hidden);
        all(names.expert_down, hidden, inner);
        if (!names.expert_down.weight.empty()) return;
        for (int i = 0; i < of.n_experts; ++i) {
            const ExpertNames expert = names_.expert(number, i);
            matrix(expert.gate, inner, hidden);
            matrix(expert.up, inner, hidden);
            matrix(expert.down, hidden, inner);
        }
    }

    const ModelConfig& config_;
    const ModelNames& names_;
    Function visit_;
};

// The key of a tensor's random weights.
std::uint64_t key_of(std::uint64_t seed, const std::string& tensor) {
    std::uint64_t key = mixed_word(seed);
    for (const char letter : tensor)
        key = mixed_word(key ^ static_cast<unsigned char>(letter));
    return key;
}

} // namespace

namespace {

// Visits the model's tensors and its encoder's, where it has one.
void visit_all(const ModelConfig& config, const Checkpoint& checkpoint, const TensorVisit::Function& visit) {
    TensorVisit(config, names_of(config, checkpoint), visit).all();
    if (!config.has_encoder()) return;
    const ModelConfig encoder = encoder_of(config);
    TensorVisit(encoder, names_of(encoder, checkpoint), visit).all();
}

// A vector may be stored as a matrix of one row.
bool is_shape(const Shape& stored, const Shape& shape) {
    return stored == shape || (shape.size() == 1 && stored == Shape{1, shape.front()});
}

} // namespace

void check_shapes(const ModelConfig& config, const Checkpoint& checkpoint) {
    const ModelNames names = names_of(config, checkpoint);
    if (!config.tied_embeddings && !checkpoint.has(names.head.weight)) {
        throw BadFile(*checkpoint.tensor(names.embedding.weight).file + ": tensor " + in_quotes(names.head.weight) +
                      " is missing; if the head is the embedding, say \"tie_word_embeddings\": true in config.json");
    }
    std::set<std::string> known;
    // A config with absurdly many layers ends at the first that the file lacks.
    visit_all(config, checkpoint, [&](const std::string& name, const Shape& shape, TensorRole) {
        const TensorView& tensor = checkpoint.tensor(name);
        const std::string where = *tensor.file + ": tensor " + in_quotes(tensor.name);
        if (!is_shape(tensor.shape, shape)) {
            throw BadFile(fmt::format("{} has shape [{}], but config.json calls for [{}]", where,
                                      fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
        }
        if (tensor.type == DiskType::other) {
            throw BadFile(where + " is of type " + tensor.dtype + "; supported: F32, F16, BF16");
        }
        known.insert(name);
    });
    for (const auto& [name, tensor] : checkpoint.tensors()) {
        if (known.contains(name) || tensor.is_part || names.ignores(name)) continue;
        throw BadFile(fmt::format("{}: tensor {} has no place in the {} model of {} layers that config.json describes",
                                  *tensor.file, in_quotes(name), config.family, config.n_layers));
    }
}

Checkpoint random_checkpoint(const ModelConfig& config, std::uint64_t seed) {
    std::vector<TensorView> tensors;
    visit_all(config, Checkpoint(), [&](const std::string& name, const Shape& shape, TensorRole role) {
        TensorView tensor;
        tensor.name = name;
        tensor.dtype = "random";
        tensor.type = DiskType::generated;
        tensor.shape = shape;
        if (role == TensorRole::matrix) tensor.generated = {true, key_of(seed, name), 0};
        if (role == TensorRole::plain_norm) tensor.generated.value = 1;
        if (role == TensorRole::norm) tensor.generated.value = 1 - config.norm_offset;
        tensors.push_back(std::move(tensor));
    });
    return Checkpoint::generated(std::move(tensors), bytes_of(config.stored_type));
}

} // namespace entrodraft::model
