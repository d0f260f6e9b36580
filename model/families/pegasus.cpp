// Pegasus: like mBART, but with sinusoidal positions and without a norm over the embedding.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_pegasus(const Fields& fields, ModelConfig& config) {
    read_bart_like(fields, config);
    config.block = Block::pre_norm;
    config.final_norm = true;
    config.positions = Positions::sinusoidal;
    if (config.decoder_start_ids.empty()) config.decoder_start_ids = {0};
}

} // namespace

FamilyDescription pegasus_family() {
    return {"pegasus", {"PegasusForConditionalGeneration"}, read_pegasus, {"model.", ""}, bart_stems};
}

} // namespace entrodraft::model
