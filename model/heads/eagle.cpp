// EAGLE (Li et al. 2024), EAGLE-2, which is the same head with a tree of another shape, and HASS (Zhang et al. 2024).
// The head is a layer without a norm before its attention. Its input is a linear map of the token's embedding and the
// target's last state.
#include "model/heads/head.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

bool is_eagle(const HeadFiles& files) {
    return files.weights.has("fc.weight") && files.weights.has("layers.0.self_attn.q_proj.weight") &&
           !files.weights.has("layers.0.hidden_norm.weight") && !files.weights.has("hidden_norm.weight"); // DFlash
}

DraftHead read_eagle(const HeadFiles& files, const HeadTarget& target) {
    nlohmann::json json = files.json;
    json.erase("bias"); // of the linear map; the stored tensors decide
    DraftHead head;
    ModelConfig config = head_layers_config(json, files, target);
    config.final_norm = false;
    head.target_layers = {target.config.n_layers};

    HeadTensors tensors(files, target);
    FusionConfig& fusion = config.fusion;
    fusion.kind = Fusion::linear;
    fusion.has_bias = tensors.has("fc.bias");
    fusion.first_attention_norm = tensors.has("layers.0.input_layernorm.weight");
    tensors.add_embedding();
    tensors.add_output();
    tensors.norm_features_as_target(config);
    tensors.add_both("model.fusion", "fc");
    for (int i = 0; i < config.n_layers; ++i)
        tensors.add_layer(i, fmt::format("layers.{}.", i));
    head.modules.push_back({config, tensors.composed()});
    return head;
}

} // namespace

HeadFormat eagle_head() {
    return {"eagle", is_eagle, read_eagle};
}

} // namespace entrodraft::model
