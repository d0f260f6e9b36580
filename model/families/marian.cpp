// Marian's translation models: BART with sinusoidal positions, without a norm over the embedding; encoder and decoder
// may have vocabularies of their own.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_marian(const Fields& fields, ModelConfig& config) {
    read_bart_like(fields, config);
    config.positions = Positions::sinusoidal;
    config.encoder.own_embedding = !fields.boolean("share_encoder_decoder_embeddings", true);
    if (config.encoder.own_embedding) config.vocab_size = fields.size("decoder_vocab_size", config.vocab_size);
    if (config.decoder_start_ids.empty() && fields.find("pad_token_id") != nullptr)
        config.decoder_start_ids = fields.token_ids("pad_token_id");
}

TensorStems marian_stems(const ModelConfig& config) {
    TensorStems stems = bart_stems(config);
    if (!config.encoder.own_embedding) return stems;
    stems.embedding = config.is_encoder ? "encoder.embed_tokens" : "decoder.embed_tokens";
    stems.embedding_aliases.clear();
    return stems;
}

} // namespace

FamilyDescription marian_family() {
    return {"marian", {"MarianMTModel"}, read_marian, {"model.", ""}, marian_stems};
}

} // namespace entrodraft::model
