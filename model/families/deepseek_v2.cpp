// DeepSeek-V2: latent attention. Later layers have experts, and also shared experts, which all rows go through.
#include "model/families/families.h"

#include <cmath>
#include <fmt/format.h>

namespace entrodraft::model {

void read_late_experts(const Fields& fields, const LateExperts& defaults, ModelConfig& config) {
    ExpertsConfig& experts = config.experts;
    experts.n_experts = fields.size("n_routed_experts", defaults.n_experts);
    experts.intermediate_size = fields.size("moe_intermediate_size", defaults.intermediate_size);
    const std::int64_t shared =
        std::int64_t{fields.size("n_shared_experts", defaults.n_shared)} * experts.intermediate_size;
    if (shared > kMaxSize) fields.refuse("'n_shared_experts' is too large");
    experts.shared_size = static_cast<int>(shared);
    experts.scale = static_cast<float>(fields.positive("routed_scaling_factor", defaults.scale));
    experts.n_groups = fields.size("n_group", defaults.n_groups);
    experts.n_chosen_groups = fields.size("topk_group", defaults.n_chosen_groups);
    read_n_chosen(fields, defaults.n_chosen, config);
    if (experts.n_experts % experts.n_groups != 0 || experts.n_chosen_groups > experts.n_groups)
        fields.refuse(fmt::format("{} experts cannot be chosen in {} of {} groups", experts.n_experts,
                                  experts.n_chosen_groups, experts.n_groups));
    const int of_group = experts.n_experts / experts.n_groups;
    if (experts.n_chosen > of_group * experts.n_chosen_groups)
        fields.refuse("'num_experts_per_tok' is more than the chosen groups have");
    if (fields.size("moe_layer_freq", 1) != 1) fields.refuse("'moe_layer_freq' other than 1 is not supported");
    const int n_dense = std::min(fields.count("first_k_dense_replace", defaults.n_dense_layers), config.n_layers);
    for (int layer = 0; layer < n_dense; ++layer)
        experts.dense_layers.push_back(layer);
}

void add_late_expert_stems(TensorStems& stems) {
    add_expert_stems(stems);
    stems.layer.shared_gate = "mlp.shared_experts.gate_proj";
    stems.layer.shared_up = "mlp.shared_experts.up_proj";
    stems.layer.shared_down = "mlp.shared_experts.down_proj";
    stems.ignores_further_layers = true; // for multi-token prediction: heads/mtp.cpp
}

void read_latent_attention(const Fields& fields, int default_query_rank, ModelConfig& config) {
    LatentConfig& latent = config.latent;
    config.vocab_size = fields.size("vocab_size");
    config.hidden_size = fields.size("hidden_size");
    config.intermediate_size = fields.size("intermediate_size");
    config.n_layers = fields.size("num_hidden_layers");
    config.n_heads = fields.size("num_attention_heads");
    config.max_positions = fields.size("max_position_embeddings");
    if (fields.size("num_key_value_heads", config.n_heads) != config.n_heads)
        fields.refuse("'num_key_value_heads' other than the heads is not supported");
    config.n_kv_heads = 1; // the cached vector serves all heads
    latent.rank = fields.size("kv_lora_rank", 512);
    latent.query_rank = fields.has("q_lora_rank") ? fields.size("q_lora_rank", 0) : default_query_rank;
    latent.plain_dim = fields.size("qk_nope_head_dim", 128);
    latent.rotated_dim = fields.size("qk_rope_head_dim", 64);
    latent.value_dim = fields.size("v_head_dim", 128);
    for (const int size : {latent.rank, latent.value_dim})
        if (size % LatentConfig::kUnit != 0)
            fields.refuse(fmt::format("'kv_lora_rank' and 'v_head_dim' must be multiples of {}", LatentConfig::kUnit));
    config.norm = Norm::rms;
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-6);
    config.activation = read_activation(fields, "hidden_act", "silu");
    config.head_dim = latent.rotated_dim; // all of it is rotated
    config.rope = read_rope(fields, {}, config);
    config.rope.interleaved = true;
    config.head_dim = latent.plain_dim + latent.rotated_dim;
    config.attention_scale = static_cast<float>(config.rope.score_factor / std::sqrt(config.head_dim));
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    fields.find("pretraining_tp"); // how a larger model's sums were cut in training: no other arithmetic
}

TensorStems latent_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    LayerStems& layer = stems.layer;
    layer.query = layer.key = layer.value = {};
    layer.query = config.latent.query_rank > 0 ? "self_attn.q_b_proj" : "self_attn.q_proj";
    if (config.latent.query_rank > 0) {
        layer.query_down = "self_attn.q_a_proj";
        layer.query_down_norm = "self_attn.q_a_layernorm";
    }
    layer.key_value_down = "self_attn.kv_a_proj_with_mqa";
    layer.key_value_down_norm = "self_attn.kv_a_layernorm";
    layer.key_value_up = "self_attn.kv_b_proj";
    add_late_expert_stems(stems);
    return stems;
}

namespace {

void read_deepseek_v2(const Fields& fields, ModelConfig& config) {
    read_latent_attention(fields, 1536, config);
    read_late_experts(fields, {64, 6, 1407, 2, 0}, config);
    const std::string method = fields.string("topk_method", "greedy");
    if (method == "greedy")
        config.experts.n_groups = config.experts.n_chosen_groups = 1;
    else if (method != "group_limited_greedy")
        fields.refuse("'topk_method' is " + method + "; supported: greedy, group_limited_greedy");
    read_token_ids(fields, 1, 2, config);
}

} // namespace

FamilyDescription deepseek_v2_family() {
    return {"deepseek_v2", {"DeepseekV2ForCausalLM"}, read_deepseek_v2, {"model.", ""}, latent_stems};
}

} // namespace entrodraft::model
