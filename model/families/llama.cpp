#include "entrodraft/model/families/llama.h"

namespace entrodraft::model {

ModelNames llama_names(bool tied_embeddings) {
    const std::string embedding = "model.embed_tokens.weight";
    return {
        .embedding = embedding,
        .final_norm = "model.norm.weight",
        .head = tied_embeddings ? embedding : "lm_head.weight",
        .layer = llama_layer,
        .ignores = llama_ignores,
    };
}

LayerNames llama_layer(int index) {
    const std::string layer = "model.layers." + std::to_string(index) + ".";
    return {
        .input_norm = layer + "input_layernorm.weight",
        .query = layer + "self_attn.q_proj.weight",
        .key = layer + "self_attn.k_proj.weight",
        .value = layer + "self_attn.v_proj.weight",
        .output = layer + "self_attn.o_proj.weight",
        .post_attention_norm = layer + "post_attention_layernorm.weight",
        .gate = layer + "mlp.gate_proj.weight",
        .up = layer + "mlp.up_proj.weight",
        .down = layer + "mlp.down_proj.weight",
    };
}

bool llama_ignores(std::string_view tensor_name) {
    return tensor_name == "lm_head.weight" || tensor_name.ends_with("rotary_emb.inv_freq");
}

} // namespace entrodraft::model
