// Falcon (Gao et al. 2025), which is not a head of Falcon models. Its input comes from LSTM cells over the tokens'
// embeddings and the target's last states. Its layers draft several tokens a pass, with rows that see one another. Its
// authors' format can be read. Their code gives each row to the LSTM as a sequence of its own. So the recurrent
// matrices and forget gates have no effect, and they are not read.
#include "model/heads/head.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

bool is_falcon(const HeadFiles& files) {
    return files.weights.has("lstm.weight_ih_l0");
}

void add_cells(HeadTensors& tensors, FusionConfig& fusion) {
    fusion.kind = Fusion::cells;
    fusion.has_bias = tensors.has("lstm.bias_ih_l0");
    for (; fusion.n_cells == 0 || tensors.has(fmt::format("lstm.weight_ih_l{}", fusion.n_cells)); ++fusion.n_cells) {
        const std::string cell = fmt::format("model.cells.{}.", fusion.n_cells);
        tensors.add(cell + "weight", fmt::format("lstm.weight_ih_l{}", fusion.n_cells));
        if (!fusion.has_bias) continue;
        tensors.add(cell + "bias", fmt::format("lstm.bias_ih_l{}", fusion.n_cells));
        tensors.add(cell + "state_bias", fmt::format("lstm.bias_hh_l{}", fusion.n_cells));
    }
}

DraftHead read_falcon(const HeadFiles& files, const HeadTarget& target) {
    constexpr int kMaxBlock = 16;
    const Fields fields(files.json, files.file());
    require_target_size(fields, "hidden_size", target);
    nlohmann::json json = files.json;
    for (const char* field : {"bias", "qkv_bias"}) // of the LSTM, of attention; the stored tensors decide
        json.erase(field);
    DraftHead head;
    ModelConfig config = head_layers_config(json, files, target);
    config.final_norm = false;
    head.target_layers = {target.config.n_layers};
    head.block = fields.size("k_mask");
    if (head.block > kMaxBlock) fields.refuse(fmt::format("'k_mask' must be from 1 to {}", kMaxBlock));

    HeadTensors tensors(files, target);
    config.qkv_bias = tensors.has("layers.0.self_attn.q_proj.bias"); // and none after attention
    config.fusion.first_attention_norm = tensors.has("layers.0.input_layernorm.weight");
    tensors.add_embedding();
    tensors.add_output();
    tensors.norm_features_as_target(config);
    add_cells(tensors, config.fusion);
    for (int i = 0; i < config.n_layers; ++i)
        tensors.add_layer(i, fmt::format("layers.{}.", i));
    head.modules.push_back({config, tensors.composed()});
    return head;
}

} // namespace

HeadFormat falcon_head() {
    return {"falcon", is_falcon, read_falcon};
}

} // namespace entrodraft::model
