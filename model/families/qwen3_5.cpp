// Qwen3.5, text: Qwen3-Next with an MLP in every layer, and the matrices of linear attention stored one by one.
#include "model/families/families.h"

namespace entrodraft::model {
namespace {

void read_qwen3_5(const Fields& fields, ModelConfig& config) {
    read_common_shapes(fields, config);
    read_gated_layers(fields, config);
}

TensorStems qwen3_5_stems(const ModelConfig& config) {
    TensorStems stems = describe("qwen3_next").stems(config);
    stems.layer.linear_in = stems.layer.linear_gates = {};
    stems.layer.linear_qkv = "linear_attn.in_proj_qkv";
    stems.layer.linear_value_gates = "linear_attn.in_proj_z";
    stems.layer.linear_steps = "linear_attn.in_proj_b";
    stems.layer.linear_decays = "linear_attn.in_proj_a";
    stems.ignored.push_back("model.visual.");
    return stems;
}

} // namespace

FamilyDescription qwen3_5_family() {
    FamilyDescription family = {"qwen3_5_text",
                                {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
                                read_qwen3_5,
                                {"model.", "model.language_model.", ""},
                                qwen3_5_stems};
    family.multimodal_type = "qwen3_5";
    return family;
}

} // namespace entrodraft::model
