// Qwen2, Qwen2.5 and MiMo: Llama with biases on queries, keys and values, and, if asked for, sliding windows on later
// layers.
#include "model/families/families.h"

namespace entrodraft::model {

void read_late_windows(const Fields& fields, ModelConfig& config) {
    const bool slides = fields.boolean("use_sliding_window", false);
    const int window = fields.size("sliding_window", 4096);
    const int first_sliding = fields.count("max_window_layers", 28);
    read_windows(
        fields, [first_sliding](int layer) { return layer >= first_sliding; }, slides ? window : 0, config);
}

namespace {

void read_qwen2(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    config.qkv_bias = true;
    read_late_windows(fields, config);
    read_token_ids(fields, -1, -1, config);
}

TensorStems qwen2_stems(const ModelConfig& config) {
    TensorStems stems = llama_stems(config);
    stems.ignored.push_back("model.mtp_layers."); // MiMo's draft head: heads/mtp.cpp
    return stems;
}

} // namespace

FamilyDescription qwen2_family() {
    return {"qwen2", {"Qwen2ForCausalLM", "MiMoForCausalLM"}, read_qwen2, {"model.", ""}, qwen2_stems, {"mimo"}};
}

} // namespace entrodraft::model
