// EAGLE-3 (Li et al. 2025) and 3.1: one layer. Its attention reads the token's embedding together with a projection of
// three of the target's states. The head drafts further tokens from its own state. Its authors' format and that of
// `speculators` can be read. In P-EAGLE (Amazon 2025), one pass drafts several tokens: rows after the first have a
// token and features that stand for unknown ones.
#include "model/heads/head.h"

#include "model/weights/planned_values.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::model {
namespace {

bool is_eagle3(const HeadFiles& files) {
    const std::string type = files.text("speculators_model_type");
    return type == "eagle3" || type == "peagle" || files.weights.has("midlayer.hidden_norm.weight") ||
           files.weights.has("layers.0.hidden_norm.weight");
}

// The field lists layers whose inputs are read. The result numbers them by the layers before them.
std::vector<int> target_layers(const Fields& fields, const HeadTarget& target) {
    constexpr const char* kField = "eagle_aux_hidden_state_layer_ids";
    const int n = target.config.n_layers;
    if (!fields.find(kField) && n < 3) fields.refuse(fmt::format("the head is of a target of more than {} layers", n));
    std::vector<int> layers = {2, n / 2, n - 3};
    if (fields.find(kField)) layers = layer_ids(fields, kField, 0, target);
    std::ranges::sort(layers);
    return layers;
}

// Reads the number of tokens drafted in a pass, and the contents of the rows after the first.
void read_mask(const Fields& fields, const HeadFiles& files, DraftHead& head) {
    constexpr int kMaxTokens = 64;
    const ModelConfig& config = head.config();
    head.state = HeadState::masked;
    head.max_tokens = 1;
    if (const nlohmann::json* speculators = fields.find("speculators_config");
        speculators && speculators->is_object()) {
        const nlohmann::json methods = speculators->value("proposal_methods", nlohmann::json());
        if (methods.is_array() && !methods.empty() && methods[0].is_object())
            head.max_tokens = Fields(methods[0], files.file()).size("speculative_tokens", 1);
    }
    if (head.max_tokens > kMaxTokens) fields.refuse(fmt::format("'speculative_tokens' is above {}", kMaxTokens));
    head.mask_token = mask_token(fields, config);
    head.mask_features = read_vector(files.weights, "mask_hidden");
    if (head.mask_features.size() != static_cast<std::size_t>(config.fusion.width()))
        fields.refuse(fmt::format("tensor 'mask_hidden' has {} numbers, not {}", head.mask_features.size(),
                                  config.fusion.width()));
}

DraftHead read_eagle3(const HeadFiles& files, const HeadTarget& target) {
    const Fields fields(files.json, files.file());
    const nlohmann::json* layers = fields.find("transformer_layer_config");
    DraftHead head;
    ModelConfig config = head_layers_config(layers ? *layers : files.json, files, target);
    require_target_size(fields, "target_hidden_size", target);
    head.target_layers = target_layers(fields, target);
    config.output_tokens = read_tokens(files, target, "d2t", true);
    head.state = fields.boolean("norm_output", false) ? HeadState::after_norm : HeadState::before_norm;

    FusionConfig& fusion = config.fusion;
    fusion.kind = Fusion::attention;
    fusion.n_features = static_cast<int>(head.target_layers.size());
    fusion.projects_features = fusion.norms_embedding = fusion.norms_state = true;
    fusion.normed_residual = fields.boolean("norm_before_residual", false);

    HeadTensors tensors(files, target);
    tensors.add_embedding();
    tensors.add_output();
    tensors.add("model.norm.weight", "norm.weight");
    tensors.add("model.feature_projection.weight", "fc.weight");
    if (fields.boolean("norm_before_fc", false)) tensors.norm_features(config, 1, fusion.width(), "input_norm");
    if (fields.boolean("fc_norm", false))
        tensors.norm_features(config, fusion.n_features, fusion.feature_size, "fc_norm");
    const std::string first = tensors.has("midlayer.hidden_norm.weight") ? "midlayer." : "layers.0.";
    for (const char* part : {"self_attn.", "mlp.", "post_attention_layernorm."})
        tensors.add_layer(0, first, part);
    tensors.add("model.embedding_norm.weight", first + "input_layernorm.weight");
    tensors.add("model.state_norm.weight", first + "hidden_norm.weight");
    for (int i = 1; i < config.n_layers; ++i)
        tensors.add_layer(i, fmt::format("layers.{}.", i));
    head.modules.push_back({config, tensors.composed()});
    if (files.text("speculators_model_type") == "peagle") read_mask(fields, files, head);
    return head;
}

} // namespace

HeadFormat eagle3_head() {
    return {"eagle3", is_eagle3, read_eagle3};
}

} // namespace entrodraft::model
