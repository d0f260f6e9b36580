// Qwen3: Llama with queries and keys normed head by head, and heads of a size of their own.
#include "model/families/families.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

void read_qwen3(const Fields& fields, ModelConfig& config) {
    read_llama_like(fields, config);
    // Missing: transformers' default, whatever the hidden size; null: one head's share of it.
    if (!fields.has("head_dim")) {
        config.head_dim = 128;
        config.rope = read_rope(fields, {}, config);
    }
    config.query_key_norm = true;
    config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
    read_late_windows(fields, config);
    read_token_ids(fields, -1, -1, config);
}

ModelNames names_of_qwen3(const ModelConfig& config, const std::string& prefix) {
    ModelNames names = llama_names(config, prefix);
    names.layer = [config, prefix](int index) {
        LayerNames layer = llama_layer(config, prefix, index);
        const std::string attention = fmt::format("{}layers.{}.self_attn.", prefix, index);
        layer.query_norm = weight_only(attention + "q_norm");
        layer.key_norm = weight_only(attention + "k_norm");
        return layer;
    };
    return names;
}

} // namespace

FamilyDescription qwen3_family() {
    return {Family::qwen3, "qwen3", {"Qwen3ForCausalLM"}, read_qwen3, {"model.", ""}, names_of_qwen3};
}

} // namespace entrodraft::model
