// Layers for multi-token prediction in a target's own checkpoint: MiMo's (Xiaomi 2025). --head names the target's
// directory.
#include "model/heads/head.h"

namespace entrodraft::model {
namespace {

const std::string kLayer = "model.mtp_layers.0.";

bool is_mtp(const HeadFiles& files) {
    return files.weights.has(kLayer + "input_proj.weight");
}

DraftHead read_mtp(const HeadFiles& files, const HeadTarget& target) {
    const Fields fields(files.json, files.file());
    if (const int n = fields.size("num_nextn_predict_layers", 1); n != 1)
        fields.refuse("'num_nextn_predict_layers' is " + std::to_string(n) + "; one layer is supported");
    DraftHead head;
    nlohmann::json json = files.json;
    json["num_hidden_layers"] = 1U;
    json.erase("layer_types");
    ModelConfig config = head_layers_config(json, files, target);
    head.target_layers = {target.config.n_layers};
    head.state = HeadState::after_norm;
    config.fusion.kind = Fusion::linear;
    config.fusion.norms_embedding = config.fusion.norms_state = config.fusion.features_first = true;

    HeadTensors tensors(files, target);
    tensors.norm_features_as_target(config);
    tensors.add_of_target("model.embed_tokens.weight", target.names.embedding.weight);
    tensors.add_of_target("lm_head.weight", target.names.head.weight);
    tensors.add("model.fusion.weight", kLayer + "input_proj.weight");
    tensors.add("model.embedding_norm.weight", kLayer + "token_layernorm.weight");
    tensors.add("model.state_norm.weight", kLayer + "hidden_layernorm.weight");
    tensors.add("model.norm.weight", kLayer + "final_layernorm.weight");
    for (const char* part : {"self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm."})
        tensors.add_layer(0, kLayer, part);
    head.modules.push_back({config, tensors.composed()});
    return head;
}

} // namespace

HeadFormat mtp_head() {
    return {"mtp", is_mtp, read_mtp};
}

} // namespace entrodraft::model
