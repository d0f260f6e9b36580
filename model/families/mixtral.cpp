// Mixtral: Mistral with experts in every layer.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_mixtral(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-5);
    const int window = fields.size("sliding_window", 0);
    if (window > 0) config.windows.assign(static_cast<std::size_t>(config.n_layers), window);
    config.experts.n_experts = fields.size("num_local_experts", 8);
    config.experts.intermediate_size = config.intermediate_size;
    config.experts.normalizes = true;
    read_n_chosen(fields, 2, config);
    read_token_ids(fields, 1, 2, config);
}

TensorStems mixtral_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    stems.layer.router = "block_sparse_moe.gate";
    stems.experts = "block_sparse_moe.experts";
    stems.expert = {.gate = "w1", .up = "w3", .down = "w2"};
    return stems;
}

} // namespace

FamilyDescription mixtral_family() {
    return {"mixtral", {"MixtralForCausalLM"}, read_mixtral, {"model.", ""}, mixtral_stems};
}

} // namespace entrodraft::model
