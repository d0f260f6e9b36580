// gpt-oss: attention with sinks, a window on every other layer, experts whose SwiGLU is clamped, and biases on all
// matrices of layers.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_gpt_oss(const Fields& fields, ModelConfig& config) {
    if (fields.find("rope_scaling") == nullptr && fields.find("rope_parameters") == nullptr)
        fields.refuse("'rope_scaling' or 'rope_parameters' is missing");
    read_llama_like(fields, config);
    config.norm_epsilon = read_epsilon(fields, "rms_norm_eps", 1e-5);
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", true);
    config.has_sinks = true;
    const int window = fields.has("sliding_window") ? fields.size("sliding_window", 0) : 128;
    read_windows(
        fields, [](int layer) { return layer % 2 == 0; }, window, config);
    ExpertsConfig& experts = config.experts;
    experts.n_experts = fields.size("num_local_experts", fields.size("num_experts", 128));
    experts.intermediate_size = config.intermediate_size;
    experts.normalizes = true;
    experts.has_router_bias = experts.has_biases = experts.alternates = true;
    experts.swiglu_limit = static_cast<float>(fields.positive("swiglu_limit", 7));
    experts.swiglu_slope = static_cast<float>(fields.positive("swiglu_alpha", 1.702));
    read_n_chosen(fields, 4, config);
    read_token_ids(fields, -1, -1, config);
}

TensorStems gpt_oss_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    stems.layer.gate = stems.layer.up = stems.layer.down = {};
    stems.layer.sinks = "self_attn.sinks";
    stems.layer.router = "mlp.router";
    stems.layer.expert_gate_up = "mlp.experts.gate_up_proj";
    stems.layer.expert_down = "mlp.experts.down_proj";
    stems.expert = {.gate = "gate_proj", .up = "up_proj", .down = "down_proj"}; // only in GGUF files
    stems.transposed_experts = true;
    return stems;
}

} // namespace

FamilyDescription gpt_oss_family() {
    return {"gpt_oss", {"GptOssForCausalLM"}, read_gpt_oss, {"model.", ""}, gpt_oss_stems};
}

} // namespace entrodraft::model
