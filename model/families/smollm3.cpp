// SmolLM3: Llama, but some layers do not rotate.
#include "model/families/families.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::model {
namespace {

void read_smollm3(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    if (!fields.has("tie_word_embeddings")) config.tied_embeddings = true;
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    config.mlp_bias = fields.boolean("mlp_bias", false);
    const int interval = fields.size("no_rope_layer_interval", 4);
    const nlohmann::json* rotates = fields.find("no_rope_layers"); // 1: the layer rotates
    const auto n_layers = static_cast<std::size_t>(config.n_layers);
    if (rotates != nullptr && (!rotates->is_array() || rotates->size() != n_layers))
        fields.refuse(fmt::format("field 'no_rope_layers' is not a list of {} numbers", n_layers));
    const auto is_switch = [](const nlohmann::json& one) { return one.is_boolean() || one == 0 || one == 1; };
    if (rotates != nullptr && !std::ranges::all_of(*rotates, is_switch))
        fields.refuse("field 'no_rope_layers' has values other than 0 and 1");
    for (std::size_t layer = 0; layer < n_layers; ++layer) {
        const bool by_interval = (layer + 1) % static_cast<std::size_t>(interval) != 0;
        const bool is_rotated = rotates != nullptr ? (*rotates)[layer] == 1 || (*rotates)[layer] == true : by_interval;
        config.layer_ropes.push_back(is_rotated ? LayerRope::common : LayerRope::none);
    }
    const int window = fields.size("sliding_window", 0);
    read_windows(
        fields, [&](int layer) { return config.layer_rope(layer) == LayerRope::none; },
        fields.boolean("use_sliding_window", false) ? window : 0, config);
    read_token_ids(fields, 128000, 128001, config);
}

} // namespace

FamilyDescription smollm3_family() {
    return {"smollm3", {"SmolLM3ForCausalLM"}, read_smollm3, {"model.", ""}, llama_stems};
}

} // namespace entrodraft::model
