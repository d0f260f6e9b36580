// mBART and mBART-50: BART with norms before each half of a layer and after each stack.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_mbart(const Fields& fields, ModelConfig& config) {
    read_bart_like(fields, config);
    config.block = Block::pre_norm;
    config.final_norm = true;
    config.positions = Positions::learned;
    config.position_offset = 2;
    config.embedding_norm = true;
    if (config.decoder_start_ids.empty() && !config.eos_token_ids.empty())
        config.decoder_start_ids = {config.eos_token_ids.front()};
}

} // namespace

FamilyDescription mbart_family() {
    return {"mbart", {"MBartForConditionalGeneration"}, read_mbart, {"model.", ""}, bart_stems};
}

} // namespace entrodraft::model
