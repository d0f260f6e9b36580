// Qwen3.5 with experts, text: Qwen3-Next's experts, in every layer.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_qwen3_5_moe(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config, false);
    read_gated_layers(fields, config);
    read_experts(fields, 256, 8, 512, config);
    config.experts.normalizes = true;
    config.experts.dense_layers.clear(); // transformers' class does not read the fields that define them
    config.experts.shared_size = fields.size("shared_expert_intermediate_size", 512);
    config.experts.gated_shared = true;
}

TensorStems qwen3_5_moe_stems(const ModelConfig& config) {
    return describe("qwen3_5_text").stems(config);
}

} // namespace

FamilyDescription qwen3_5_moe_family() {
    FamilyDescription family = {"qwen3_5_moe_text",
                                {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
                                read_qwen3_5_moe,
                                {"model.", "model.language_model.", ""},
                                qwen3_5_moe_stems};
    family.multimodal_type = "qwen3_5_moe";
    return family;
}

} // namespace entrodraft::model
