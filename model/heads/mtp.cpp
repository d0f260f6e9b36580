// Layers for multi-token prediction in a target's own checkpoint: MiMo's (Xiaomi 2025), the one of Qwen3-Next and
// Qwen3.5, and the layer after the last one of DeepSeek-V3 and GLM-4.5. --head names the target's directory.
#include "model/heads/head.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>

namespace entrodraft::model {
namespace {

// A family's names for the tensors around the layer itself.
struct MtpNames {
    std::string layer;  // prefix of the layer's names
    std::string beside; // prefix of all other names
    std::string fusion, embedding_norm, state_norm, final_norm;
    bool features_first = false;
    std::string embedding, head; // copies of the target's
};

const MtpNames kMimo = {"model.mtp_layers.0.",
                        "model.mtp_layers.0.",
                        "input_proj",
                        "token_layernorm",
                        "hidden_layernorm",
                        "final_layernorm",
                        true,
                        {},
                        {}};
const MtpNames kQwen = {"mtp.layers.0.", "mtp.", "fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm",
                        false,           {},     {}};
constexpr std::string_view kFusion = ".eh_proj.weight"; // of DeepSeek and GLM

bool has(const HeadFiles& files, const MtpNames& names) {
    return files.weights.has(names.beside + names.fusion + ".weight");
}

bool is_mtp(const HeadFiles& files) {
    const auto& tensors = files.weights.tensors();
    return has(files, kMimo) || has(files, kQwen) ||
           std::ranges::any_of(tensors, [](const auto& tensor) { return tensor.first.ends_with(kFusion); });
}

MtpNames names_in(const HeadFiles& files, const HeadTarget& target) {
    for (const MtpNames& names : {kMimo, kQwen})
        if (has(files, names)) return names;
    const std::string behind = fmt::format("model.layers.{}.", target.config.n_layers);
    return {behind, behind, "eh_proj", "enorm", "hnorm", "shared_head.norm", false, "embed_tokens", "shared_head.head"};
}

DraftHead read_mtp(const HeadFiles& files, const HeadTarget& target) {
    const Fields fields(files.json, files.file());
    for (const char* count : {"num_nextn_predict_layers", "mtp_num_hidden_layers"})
        if (const int n = fields.size(count, 1); n != 1)
            fields.refuse(fmt::format("'{}' is {}; one layer is supported", count, n));
    DraftHead head;
    nlohmann::json json = files.json;
    json["num_hidden_layers"] = 1U;
    json["first_k_dense_replace"] = 0U; // the layer has experts where later ones have
    json["full_attention_interval"] = 1U;
    for (const char* by_layer : {"layer_types", "mlp_only_layers", "decoder_sparse_step"})
        json.erase(by_layer);
    ModelConfig config = head_layers_config(json, files, target);
    head.target_layers = {target.config.n_layers};
    head.state = HeadState::after_norm;
    const MtpNames names = names_in(files, target);
    config.fusion.kind = Fusion::linear;
    config.fusion.norms_embedding = config.fusion.norms_state = true;
    config.fusion.features_first = names.features_first;

    HeadTensors tensors(files, target);
    tensors.norm_features_as_target(config);
    tensors.add_embedding(names.beside + names.embedding + ".weight");
    tensors.add_output(names.beside + names.head + ".weight");
    tensors.add("model.fusion.weight", names.beside + names.fusion + ".weight");
    tensors.add("model.embedding_norm.weight", names.beside + names.embedding_norm + ".weight");
    tensors.add("model.state_norm.weight", names.beside + names.state_norm + ".weight");
    tensors.add("model.norm.weight", names.beside + names.final_norm + ".weight");
    for (const char* part : {"self_attn.", "mlp.", "input_layernorm.", "post_attention_layernorm."})
        tensors.add_layer(0, names.layer, part);
    head.modules.push_back({config, tensors.composed()});
    return head;
}

} // namespace

HeadFormat mtp_head() {
    return {"mtp", is_mtp, read_mtp};
}

} // namespace entrodraft::model
