#include "model/decoder.h"

#include "model/families/names.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::model {

dist::Slice vocab_slice(const ModelConfig& config, int tp_rank, int tp_size) {
    return shard_of(config, tp_rank, tp_size).vocab;
}

std::string what_needs_cpu(const ModelConfig& config, OtherDevice device) {
    if (config.has_encoder()) return "an encoder";
    if (config.is_latent()) return "latent attention";
    if (config.embedding_norm) return "a norm of its embeddings";
    if (device == OtherDevice::torch) return "";
    if (config.output_scale != 1) return "scaled logits";
    if (config.positions == Positions::alibi && !config.scaled_alibi) return "ALiBi as BLOOM has it";
    if (config.n_expert_layers() > 0) return "experts";
    if (config.norm == Norm::layer && !config.norm_bias) return "LayerNorm without biases";
    if (config.query_key_norm == QueryKeyNorm::row) return "queries and keys normed row by row";
    if (config.rope.interleaved) return "rotary positions of neighbouring pairs";
    if (!config.layer_ropes.empty()) return "rotary positions that differ by layer";
    return "";
}

DecoderSetup prepare_decoder(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                             const dist::Communicator& tp) {
    DecoderSetup setup = {config, {}, {}};
    untie_stored_head(setup.config, checkpoint);
    check_shapes(setup.config, checkpoint);
    setup.shard = shard_of(config, tp.rank(), tp.size());
    const int capacity = options.capacity > 0 ? options.capacity : config.max_positions;
    setup.config.max_positions = std::min(config.max_positions, capacity);
    setup.cache = {config.n_layers, setup.shard.n_kv_heads(),          config.key_dim(),
                   options.n_slots, capacity + options.tree_positions, config.value_dim()};
    if (!config.has_encoder()) return setup;
    const ModelConfig encoder = encoder_of(setup.config);
    setup.encoder_shard = shard_of(encoder, tp.rank(), tp.size());
    setup.sources = setup.cache;
    setup.sources.capacity =
        options.source_capacity > 0 ? std::min(options.source_capacity, encoder.max_positions) : encoder.max_positions;
    return setup;
}

void Decoder::encode(int, std::span<const TokenId>) {
    throw std::invalid_argument("the model has no encoder to read a source");
}

} // namespace entrodraft::model
