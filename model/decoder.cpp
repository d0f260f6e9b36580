#include "model/decoder.h"

#include "model/families/names.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::model {

dist::Slice vocab_slice(const ModelConfig& config, int tp_rank, int tp_size) {
    return shard_of(config, tp_rank, tp_size).vocab;
}

DecoderSetup prepare_decoder(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                             const dist::Communicator& tp) {
    DecoderSetup setup = {config, {}, {}};
    untie_stored_head(setup.config, checkpoint);
    check_shapes(setup.config, checkpoint);
    setup.shard = shard_of(config, tp.rank(), tp.size());
    const int capacity = options.capacity > 0 ? options.capacity : config.max_positions;
    setup.config.max_positions = std::min(config.max_positions, capacity);
    setup.cache = {config.n_layers, setup.shard.n_kv_heads(), config.head_dim, options.n_slots,
                   capacity + options.tree_positions};
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
