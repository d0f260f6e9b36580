// Phi-3 and Phi-4: Llama with queries, keys and values in one matrix, gate and up in another.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_phi3(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-5);
    config.activation = read_activation(fields, "hidden_act", "silu");
    config.rope = read_rope(fields, {.takes_share = true}, config);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    const int window = fields.size("sliding_window", 0);
    if (window > 0) config.windows.assign(static_cast<std::size_t>(config.n_layers), window);
    read_token_ids(fields, 1, 32000, config);
}

TensorStems phi3_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    LayerStems& layer = stems.layer;
    layer.query = layer.key = layer.value = layer.gate = layer.up = {};
    layer.qkv = "self_attn.qkv_proj";
    layer.gate_up = "mlp.gate_up_proj";
    stems.qkv = QkvForm::stacked;
    return stems;
}

} // namespace

FamilyDescription phi3_family() {
    return {"phi3", {"Phi3ForCausalLM"}, read_phi3, {"model.", ""}, phi3_stems};
}

} // namespace entrodraft::model
