// Mistral: Llama with a sliding window on every layer.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_mistral(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    // Missing: transformers' default; null: none.
    const int window = fields.has("sliding_window") ? fields.size("sliding_window", 0) : 4096;
    if (window > 0) config.windows.assign(static_cast<std::size_t>(config.n_layers), window);
    read_token_ids(fields, 1, 2, config);
}

} // namespace

FamilyDescription mistral_family() {
    return {"mistral", {"MistralForCausalLM"}, read_mistral, {"model.", ""}, llama_stems};
}

} // namespace entrodraft::model
