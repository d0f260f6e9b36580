#include "model/pass/decoder.h"

#include "model/families/names.h"
#include "model/weights/tensor_shapes.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::model {

int bytes_of(ActivationType type) {
    return type == ActivationType::int24 ? 3 : type == ActivationType::int16 ? 2 : 1;
}

std::string to_string(ActivationType type) {
    return fmt::format("int{}", 8 * bytes_of(type));
}

dist::Slice vocab_slice(const ModelConfig& config, int tp_rank, int tp_size) {
    return shard_of(config, tp_rank, tp_size).vocab;
}

std::string what_needs_cpu(const ModelConfig& config) {
    if (config.linear.key_dim > kMaxLinearKeyDim)
        return fmt::format("linear attention with keys of more than {} dimensions", kMaxLinearKeyDim);
    if (config.quantization && config.quantization->group == 16) return "quantised weights in groups of 16";
    return "";
}

std::string what_torch_lacks(const ModelConfig& config) {
    if (config.quantization) return "quantised weights";
    if (config.is_latent()) return "latent attention";
    if (config.has_sinks) return "attention sinks";
    if (config.n_linear_layers() > 0) return "linear attention";
    if (config.gated_attention) return "a gate on what is attended";
    return what_needs_cpu(config);
}

WeightType automatic_type(const ModelConfig& config, bool on_gpu) {
    return on_gpu && config.quantization ? activation_type(WeightType::int8, config.stored_type) : config.stored_type;
}

std::string what_stays_float32(const ModelConfig& config) {
    if (config.is_latent()) return "the vectors of latent attention";
    return config.n_linear_layers() > 0 ? "the states of linear attention" : "";
}

WeightType kv_type_of(const ModelConfig& config, WeightType weights, std::optional<WeightType> asked) {
    if (!what_stays_float32(config).empty()) return WeightType::float32;
    const bool is_exact = weights == WeightType::float32 && !config.quantization;
    return asked.value_or(is_exact ? WeightType::float32 : WeightType::float16);
}

RecurrentStates::Shape recurrent_shape(const ModelConfig& config, const RankShard& shard, int tree_positions) {
    if (config.n_linear_layers() == 0) return {};
    const LinearAttentionConfig& linear = config.linear;
    return {config.n_linear_layers(),
            static_cast<int>(shard.linear_keys.size()),
            linear.group(),
            linear.key_dim,
            linear.value_dim,
            linear.n_convolved,
            tree_positions};
}

DecoderSetup prepare_decoder(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                             const dist::Communicator& tp) {
    ModelConfig stored = config;
    untie_stored_head(stored, checkpoint);
    check_shapes(stored, checkpoint);
    return lay_out_decoder(stored, options, tp.rank(), tp.size());
}

DecoderSetup lay_out_decoder(const ModelConfig& config, const DecoderOptions& options, int tp_rank, int tp_size) {
    DecoderSetup setup = {config, shard_of(config, tp_rank, tp_size), {}};
    const int capacity = options.capacity > 0 ? options.capacity : config.max_positions;
    const int kept = options.kept_positions > 0 ? std::min(options.kept_positions, capacity) : capacity;
    setup.config.max_positions = std::min(config.max_positions, capacity);
    setup.cache = {config.n_attention_layers(),
                   setup.shard.n_kv_heads(),
                   config.key_dim(),
                   options.n_slots,
                   kept + options.tree_positions + options.tree_room,
                   config.value_dim(),
                   recurrent_shape(config, setup.shard, options.tree_positions)};
    if (!config.has_encoder()) return setup;
    const ModelConfig encoder = encoder_of(setup.config);
    setup.encoder_shard = shard_of(encoder, tp_rank, tp_size);
    setup.sources = setup.cache;
    setup.sources.capacity =
        options.source_capacity > 0 ? std::min(options.source_capacity, encoder.max_positions) : encoder.max_positions;
    setup.encoder_layer = {1, setup.encoder_shard.n_kv_heads(), encoder.head_dim, 1, setup.sources.capacity};
    return setup;
}

void Decoder::encode(int slot, std::span<const TokenId> source) {
    if (max_source_ == 0) throw std::invalid_argument("the model has no encoder to read a source");
    if (cache_->length(slot) > 0) throw std::invalid_argument("a source goes before the text of its slot");
    if (source.empty() || source.size() > index(max_source_))
        throw std::invalid_argument(fmt::format("a source has 1 to {} tokens, not {}", max_source_, source.size()));
    const int n_known = config_.encoder.vocab_size;
    for (const TokenId token : source)
        if (token < 0 || token >= n_known)
            throw std::invalid_argument(
                fmt::format("token id {} is outside the encoder's vocabulary of {}", token, n_known));
    read_source(cache_->new_source(slot), source);
}

std::unique_ptr<Decoder> Decoder::over_same_weights(const ModelConfig&, const DecoderOptions&) const {
    throw std::logic_error("a decoder that does not share its weights");
}

void Decoder::read_source(int, std::span<const TokenId>) {
    throw std::logic_error("a decoder that does not read sources itself");
}

void Decoder::require_sources(std::span<const Row> rows) const {
    for (const Row& row : rows)
        if (max_source_ > 0 && cache_->source(row.slot) < 0)
            throw std::invalid_argument(fmt::format("slot {} of the cache has no source", row.slot));
}

} // namespace entrodraft::model
