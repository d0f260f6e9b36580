// DFlash (Z Lab 2026): layers that turn a block into tokens in one pass. The block is the last token and masks. Every
// slot of the block sees the whole block. For the text before the block, it sees keys and values of the target's
// states. Its authors' format and that of `speculators` can be read.
#include "model/heads/head.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace entrodraft::model {
namespace {

const nlohmann::json* own_fields(const HeadFiles& files) {
    const auto found = files.json.find("dflash_config");
    return found != files.json.end() && found->is_object() ? &*found : nullptr;
}

bool is_dflash(const HeadFiles& files) {
    return files.text("speculators_model_type") == "dflash" || own_fields(files);
}

// Returns layers spread evenly, from after the second layer to after the third from the end.
std::vector<int> default_layers(int n_target_layers, int n_layers) {
    if (n_layers == 1) return {n_target_layers / 2 + 1};
    std::vector<int> layers;
    for (int i = 0; i < n_layers; ++i)
        layers.push_back(static_cast<int>(std::nearbyint(1 + i * (n_target_layers - 4.0) / (n_layers - 1))) + 1);
    return layers;
}

// Returns layers whose outputs are read. speculators lists layers whose inputs are read.
std::vector<int> target_layers(const Fields& fields, const Fields& own, int n_layers, const HeadTarget& target) {
    if (fields.find("aux_hidden_state_layer_ids")) return layer_ids(fields, "aux_hidden_state_layer_ids", 0, target);
    if (own.find("target_layer_ids")) return layer_ids(own, "target_layer_ids", 1, target);
    return default_layers(target.config.n_layers, n_layers);
}

void check_fields(const Fields& fields, const Fields& own, const ModelConfig& config) {
    for (const Fields* each : {&fields, &own})
        for (const char* name : {"is_causal", "sample_from_anchor"})
            if (each->boolean(name, false)) fields.refuse(fmt::format("'{}' is true, which is not supported", name));
    if (fields.positive("output_multiplier", 1) != 1) fields.refuse("'output_multiplier' is not supported");
    if (std::ranges::any_of(config.windows, [](int window) { return window > 0; }))
        fields.refuse("'layer_types' has sliding windows, which are not supported");
}

DraftHead read_dflash(const HeadFiles& files, const HeadTarget& target) {
    constexpr int kMaxBlock = 64;
    const Fields fields(files.json, files.file());
    const nlohmann::json* nested = own_fields(files);
    const Fields own(nested ? *nested : files.json, files.file());
    const nlohmann::json* layers = fields.find("transformer_layer_config");
    DraftHead head;
    ModelConfig config = head_layers_config(layers ? *layers : files.json, files, target);
    require_target_size(fields, "target_hidden_size", target);
    check_fields(fields, own, config);
    config.embedding_scale = static_cast<float>(fields.positive("input_embedding_scale", config.embedding_scale));
    if (fields.find("final_logit_softcapping"))
        config.logit_soft_cap = static_cast<float>(fields.positive("final_logit_softcapping", 1));
    const int block = fields.find("block_size") ? fields.size("block_size") : own.size("block_size");
    if (block < 2 || block > kMaxBlock) fields.refuse(fmt::format("'block_size' must be from 2 to {}", kMaxBlock));
    head.target_layers = target_layers(fields, own, config.n_layers, target);
    config.output_tokens = read_tokens(files, target, "d2t", true);
    head.state = HeadState::masked;
    head.max_tokens = block - 1;
    head.mask_token = mask_token(own, config);

    FusionConfig& fusion = config.fusion;
    fusion.kind = Fusion::context;
    fusion.n_features = static_cast<int>(head.target_layers.size());
    fusion.projects_features = fusion.norms_state = fusion.normed_residual = true;

    HeadTensors tensors(files, target);
    tensors.add_embedding();
    tensors.add_output();
    tensors.add("model.norm.weight", "norm.weight");
    tensors.add("model.feature_projection.weight", "fc.weight");
    tensors.add("model.state_norm.weight", "hidden_norm.weight");
    for (int i = 0; i < config.n_layers; ++i)
        tensors.add_layer(i, fmt::format("layers.{}.", i));
    head.modules.push_back({config, tensors.composed()});
    return head;
}

} // namespace

HeadFormat dflash_head() {
    return {"dflash", is_dflash, read_dflash};
}

} // namespace entrodraft::model
