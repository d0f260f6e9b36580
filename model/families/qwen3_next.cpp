// Qwen3-Next: three layers of gated DeltaNet for each layer of attention. The output of attention has a gate. Experts
// are as in Qwen2-MoE.
#include "model/families/families.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

// Reads layer_types; without it, every full_attention_interval-th layer has attention.
void read_linear_layers(const Fields& fields, ModelConfig& config) {
    const int interval = fields.size("full_attention_interval", 4);
    const nlohmann::json* types = fields.find("layer_types");
    if (types != nullptr && (!types->is_array() || types->size() != static_cast<std::size_t>(config.n_layers)))
        fields.refuse(fmt::format("field 'layer_types' is not a list of the {} layers' types", config.n_layers));
    for (int layer = 0; layer < config.n_layers; ++layer) {
        bool is_linear = (layer + 1) % interval != 0;
        if (types != nullptr) {
            const nlohmann::json& type = (*types)[layer];
            if (type != "linear_attention" && type != "full_attention")
                fields.refuse("field 'layer_types' holds " + shown(type) +
                              "; supported: linear_attention, full_attention");
            is_linear = type == "linear_attention";
        }
        if (is_linear) config.linear.layers.push_back(layer);
    }
}

void read_linear_attention(const Fields& fields, ModelConfig& config) {
    read_linear_layers(fields, config);
    LinearAttentionConfig& linear = config.linear;
    linear.n_key_heads = fields.size("linear_num_key_heads", 16);
    linear.n_value_heads = fields.size("linear_num_value_heads", 32);
    linear.key_dim = fields.size("linear_key_head_dim", 128);
    linear.value_dim = fields.size("linear_value_head_dim", 128);
    linear.n_convolved = fields.size("linear_conv_kernel_dim", 4);
    if (linear.n_value_heads % linear.n_key_heads != 0)
        fields.refuse(fmt::format("'linear_num_value_heads' ({}) is not a multiple of 'linear_num_key_heads' ({})",
                                  linear.n_value_heads, linear.n_key_heads));
    if (linear.value_dim % linear.kUnit != 0)
        fields.refuse(
            fmt::format("'linear_value_head_dim' is {}; supported: multiples of {}", linear.value_dim, linear.kUnit));
    if (linear.n_convolved > linear.kMaxConvolved)
        fields.refuse(fmt::format("'linear_conv_kernel_dim' is {}; supported: up to {}", linear.n_convolved,
                                  linear.kMaxConvolved));
    const std::int64_t of_key =
        2 * (std::int64_t{linear.key_dim} + linear.group() * std::int64_t{linear.value_dim} + 1);
    if (linear.n_value_heads > kMaxSize / linear.value_dim || linear.n_key_heads > kMaxSize / of_key ||
        linear.key_dim > kMaxSize / linear.value_dim / linear.n_value_heads)
        fields.refuse(fmt::format("the sizes of linear attention make rows or states of more than {}", kMaxSize));
}

} // namespace

void read_gated_layers(const Fields& fields, ModelConfig& config) {
    if (!fields.has("head_dim")) config.head_dim = 256; // transformers' default, whatever the hidden size
    config.norm = Norm::rms;
    config.norm_offset = 1;
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-6);
    config.activation = read_activation(fields, "hidden_act", "silu");
    config.rope = read_rope(fields, {.default_share = 0.25, .takes_share = true, .takes_sections = true}, config);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    config.query_key_norm = QueryKeyNorm::head;
    config.gated_attention = true;
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    read_linear_attention(fields, config);
    read_token_ids(fields, -1, -1, config);
}

namespace {

void read_qwen3_next(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    read_gated_layers(fields, config);
    read_experts(fields, 512, 10, 512, config);
    config.experts.normalizes = fields.boolean("norm_topk_prob", true);
    config.experts.shared_size = fields.size("shared_expert_intermediate_size", 512);
    config.experts.gated_shared = true;
}

TensorStems qwen3_next_stems(const ModelConfig& config) {
    TensorStems stems = describe("qwen2_moe").stems(config);
    stems.layer.query_norm = "self_attn.q_norm";
    stems.layer.key_norm = "self_attn.k_norm";
    stems.layer.linear_in = "linear_attn.in_proj_qkvz";
    stems.layer.linear_gates = "linear_attn.in_proj_ba";
    stems.layer.linear_convolution = "linear_attn.conv1d";
    stems.layer.linear_decay = "linear_attn.A_log";
    stems.layer.linear_decay_bias = "linear_attn.dt_bias";
    stems.layer.linear_norm = "linear_attn.norm";
    stems.layer.linear_output = "linear_attn.out_proj";
    stems.ignored.push_back("mtp."); // of a draft head: heads/mtp.cpp
    return stems;
}

} // namespace

FamilyDescription qwen3_next_family() {
    return {"qwen3_next", {"Qwen3NextForCausalLM"}, read_qwen3_next, {"model.", ""}, qwen3_next_stems};
}

} // namespace entrodraft::model
