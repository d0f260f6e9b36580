// Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts. All rows also go through a shared expert, which has a gate of its own.
#include "model/families/families.h"

#include <fmt/format.h>

namespace entrodraft::model {

void read_n_chosen(const Fields& fields, int default_value, ModelConfig& config) {
    config.experts.n_chosen = fields.size("num_experts_per_tok", default_value);
    if (config.experts.n_chosen > config.experts.n_experts)
        fields.refuse(fmt::format("'num_experts_per_tok' is {}, of {} experts", config.experts.n_chosen,
                                  config.experts.n_experts));
}

void read_experts(const Fields& fields, int default_experts, int default_chosen, int default_size,
                  ModelConfig& config) {
    ExpertsConfig& experts = config.experts;
    experts.n_experts = fields.size("num_experts", fields.size("num_local_experts", default_experts));
    experts.intermediate_size = fields.size("moe_intermediate_size", default_size);
    experts.normalizes = fields.boolean("norm_topk_prob", false);
    read_n_chosen(fields, default_chosen, config);
    const int step = fields.size("decoder_sparse_step", 1);
    std::vector<bool> is_dense(static_cast<std::size_t>(config.n_layers), false);
    for (std::size_t layer = 0; layer < is_dense.size(); ++layer)
        is_dense[layer] = (layer + 1) % static_cast<std::size_t>(step) != 0;
    if (const nlohmann::json* layers = fields.find("mlp_only_layers")) {
        if (!layers->is_array()) fields.refuse("field 'mlp_only_layers' is not a list");
        for (const nlohmann::json& layer : *layers) {
            if (!layer.is_number_unsigned()) fields.refuse("field 'mlp_only_layers' holds " + shown(layer));
            if (layer < is_dense.size()) is_dense[layer.get<std::size_t>()] = true;
        }
    }
    for (std::size_t layer = 0; layer < is_dense.size(); ++layer)
        if (is_dense[layer]) experts.dense_layers.push_back(static_cast<int>(layer));
}

void add_expert_stems(TensorStems& stems) {
    stems.layer.router = "mlp.gate";
    stems.layer.expert_gate_up = "mlp.experts.gate_up_proj";
    stems.layer.expert_down = "mlp.experts.down_proj";
    stems.expert = {.gate = "gate_proj", .up = "up_proj", .down = "down_proj"};
}

namespace {

void read_qwen2_moe(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    config.qkv_bias = fields.boolean("qkv_bias", true);
    read_experts(fields, 60, 4, 1408, config);
    config.experts.shared_size = fields.size("shared_expert_intermediate_size", 5632);
    config.experts.gated_shared = true;
    if (fields.boolean("use_sliding_window", false)) fields.refuse("'use_sliding_window' is not supported");
    for (const char* of_windows : {"sliding_window", "max_window_layers", "layer_types"}) // not in use
        fields.find(of_windows);
    read_token_ids(fields, -1, -1, config);
}

TensorStems qwen2_moe_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    add_expert_stems(stems);
    stems.layer.shared_gate = "mlp.shared_expert.gate_proj";
    stems.layer.shared_up = "mlp.shared_expert.up_proj";
    stems.layer.shared_down = "mlp.shared_expert.down_proj";
    stems.layer.shared_scale = "mlp.shared_expert_gate";
    return stems;
}

} // namespace

FamilyDescription qwen2_moe_family() {
    return {"qwen2_moe", {"Qwen2MoeForCausalLM"}, read_qwen2_moe, {"model.", ""}, qwen2_moe_stems};
}

} // namespace entrodraft::model
