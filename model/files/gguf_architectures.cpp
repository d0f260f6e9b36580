// Here are the conventions of llama.cpp's converter. Where no key states a convention, they are those of llama.cpp's
// graphs.
#include "model/files/gguf_architectures.h"

#include "model/files/bad_file.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;
using Names = GgufArchitecture::Names;

std::string shown_value(const Json& value) {
    return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// ---- values that fields alone do not state ----

void find_biases(const GgufMetadata& file, Json& config) {
    config["attention_bias"] = file.tensor("blk.0.attn_q.bias") != nullptr;
}

// Gemma's largest models scale by a head's share of the row, the others by the size of a head.
void scale_gemma(const GgufMetadata& file, Json& config, std::uint64_t layers_of_largest) {
    const Json &hidden = config["hidden_size"], &heads = config["num_attention_heads"];
    const bool is_largest = config["num_hidden_layers"] == layers_of_largest && hidden.is_number_unsigned() &&
                            heads.is_number_unsigned() && heads != 0;
    config["query_pre_attn_scalar"] = is_largest ? Json(hidden.get<std::uint64_t>() / heads.get<std::uint64_t>())
                                                 : file.required("attention.key_length");
}

void complete_gemma2(const GgufMetadata& file, Json& config) {
    scale_gemma(file, config, 46);
    if (const Json* base = file.field("rope.freq_base")) file.refuse_other("rope.freq_base_swa", *base);
}

void complete_gemma3(const GgufMetadata& file, Json& config) {
    scale_gemma(file, config, 62);
    if (!config.contains("sliding_window")) config["sliding_window"] = Json();
}

std::vector<float> numbers_of(const TensorView& tensor) {
    std::vector<float> numbers(tensor.bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), tensor.bytes.data(), numbers.size() * sizeof(float));
    return numbers;
}

void complete_phi3(const GgufMetadata& file, Json& config) {
    if (config.value("sliding_window", Json()) == 0) config.erase("sliding_window");
    const TensorView *short_factors = file.tensor("rope_factors_short.weight"),
                     *long_factors = file.tensor("rope_factors_long.weight");
    if (!short_factors && !long_factors) return;
    for (const TensorView* each : {short_factors, long_factors})
        if (!each || each->type != DiskType::float32)
            file.refuse("tensors 'rope_factors_short.weight' and 'rope_factors_long.weight' are not both F32");
    config["rope_scaling"] = {{"rope_type", "longrope"},
                              {"short_factor", numbers_of(*short_factors)},
                              {"long_factor", numbers_of(*long_factors)}};
    config["original_max_position_embeddings"] = file.required("rope.scaling.original_context_length");
    if (const Json* factor = file.field("rope.scaling.attn_factor"))
        config["rope_scaling"]["attention_factor"] = *factor;
}

void complete_stablelm(const GgufMetadata& file, Json& config) {
    config["use_qkv_bias"] = file.tensor("blk.0.attn_q.bias") != nullptr;
    if (file.tensor("blk.0.attn_q_norm.weight")) file.refuse("queries and keys with norms are not supported");
}

void complete_glm4(const GgufMetadata& file, Json& config) {
    find_biases(file, config);
    if (file.field("rope.dimension_sections")) file.refuse("'glm4.rope.dimension_sections' is not supported");
}

void complete_glm4_moe(const GgufMetadata& file, Json& config) {
    complete_glm4(file, config);
    config["use_qk_norm"] = file.tensor("blk.0.attn_q_norm.weight") != nullptr;
}

void complete_gpt_oss(const GgufMetadata&, Json& config) {
    if (config.contains("rope_scaling"))
        config["rope_scaling"]["truncate"] = false;
    else
        config["rope_scaling"] = {{"rope_type", "default"}};
}

// ---- names ----

const Names kExperts = {{"ffn_gate_inp", "mlp.gate"},
                        {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                        {"ffn_up_exps", "mlp.experts.*.up_proj"},
                        {"ffn_down_exps", "mlp.experts.*.down_proj"}};
const Names kSandwich = {{"post_attention_norm", "post_attention_layernorm"},
                         {"ffn_norm", "pre_feedforward_layernorm"},
                         {"post_ffw_norm", "post_feedforward_layernorm"}};
const Names kFusedGate = {{"ffn_up", "mlp.gate_up_proj"}, {"attn_qkv", "self_attn.qkv_proj"}};

Names joined(Names names, const Names& more) {
    names.insert(names.end(), more.begin(), more.end());
    return names;
}

const std::pair<std::string_view, std::string_view> kRmsEpsilon = {"attention.layer_norm_rms_epsilon", "rms_norm_eps"};
const std::pair<std::string_view, std::string_view> kWindow = {"attention.sliding_window", "sliding_window"};
const std::pair<std::string_view, std::string_view> kChosen = {"expert_used_count", "num_experts_per_tok"};

Names qwen_experts() {
    return {kRmsEpsilon,
            kChosen,
            {"expert_count", "num_experts"},
            {"expert_feed_forward_length", "moe_intermediate_size"},
            {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}};
}

const std::vector<GgufArchitecture> kArchitectures = {
    {.name = "llama",
     .model_type = "llama",
     .class_name = "LlamaForCausalLM",
     .pairs_neighbours = true,
     .fields = {kRmsEpsilon},
     .complete = find_biases},
    {.name = "llama",
     .model_type = "mixtral",
     .class_name = "MixtralForCausalLM",
     .has_experts = true,
     .pairs_neighbours = true,
     .fields = {kRmsEpsilon, kChosen, {"expert_count", "num_local_experts"}},
     .tensors = {{"ffn_gate_inp", "block_sparse_moe.gate"},
                 {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
                 {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
                 {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}}},
    {.name = "qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM", .fields = {kRmsEpsilon}},
    {.name = "qwen2moe",
     .model_type = "qwen2_moe",
     .class_name = "Qwen2MoeForCausalLM",
     .has_experts = true,
     .fields = qwen_experts(),
     .implied = {{"norm_topk_prob", false}},
     .tensors = joined({{"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                        {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                        {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                        {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}},
                       kExperts)},
    {.name = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM", .fields = {kRmsEpsilon}},
    {.name = "qwen3moe",
     .model_type = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .has_experts = true,
     .fields = qwen_experts(),
     .implied = {{"norm_topk_prob", true}},
     .tensors = kExperts},
    {.name = "gemma",
     .model_type = "gemma",
     .class_name = "GemmaForCausalLM",
     .norms_are_whole = true,
     .fields = {kRmsEpsilon}},
    {.name = "gemma2",
     .model_type = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .norms_are_whole = true,
     .fields = {kRmsEpsilon,
                kWindow,
                {"attn_logit_softcapping", "attn_logit_softcapping"},
                {"final_logit_softcapping", "final_logit_softcapping"}},
     .tensors = kSandwich,
     .complete = complete_gemma2},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .norms_are_whole = true,
     .fields = {kRmsEpsilon, kWindow, {"rope.freq_base_swa", "rope_local_base_freq"}},
     .tensors = kSandwich,
     .complete = complete_gemma3},
    {.name = "phi3",
     .model_type = "phi3",
     .class_name = "Phi3ForCausalLM",
     .fields = {kRmsEpsilon, kWindow},
     .tensors = kFusedGate,
     .complete = complete_phi3},
    {.name = "olmo2",
     .model_type = "olmo2",
     .class_name = "Olmo2ForCausalLM",
     .fields = {kRmsEpsilon},
     .tensors = {{"post_attention_norm", "post_attention_layernorm"}, {"post_ffw_norm", "post_feedforward_layernorm"}}},
    {.name = "olmoe",
     .model_type = "olmoe",
     .class_name = "OlmoeForCausalLM",
     .has_experts = true,
     .fields = {kRmsEpsilon, kChosen, {"expert_count", "num_experts"}},
     .implied = {{"norm_topk_prob", false}},
     .tensors = kExperts},
    {.name = "granite",
     .model_type = "granite",
     .class_name = "GraniteForCausalLM",
     .pairs_neighbours = true,
     .fields = {kRmsEpsilon,
                {"attention.scale", "attention_multiplier"},
                {"embedding_scale", "embedding_multiplier"},
                {"residual_scale", "residual_multiplier"},
                {"logit_scale", "logits_scaling"}},
     .complete = find_biases},
    {.name = "smollm3",
     .model_type = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .pairs_neighbours = true,
     .fields = {kRmsEpsilon},
     .complete = find_biases},
    {.name = "starcoder2",
     .model_type = "starcoder2",
     .class_name = "Starcoder2ForCausalLM",
     .fields = {{"attention.layer_norm_epsilon", "norm_epsilon"}},
     .tensors = {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}}},
    {.name = "stablelm",
     .model_type = "stablelm",
     .class_name = "StableLmForCausalLM",
     .fields = {{"attention.layer_norm_epsilon", "layer_norm_eps"}, {"use_parallel_residual", "use_parallel_residual"}},
     .complete = complete_stablelm},
    {.name = "cohere2",
     .model_type = "cohere2",
     .class_name = "Cohere2ForCausalLM",
     .fields = {{"attention.layer_norm_epsilon", "layer_norm_eps"}, kWindow, {"logit_scale", "logit_scale"}}},
    {.name = "glm4",
     .model_type = "glm4",
     .class_name = "Glm4ForCausalLM",
     .fields = {kRmsEpsilon},
     .tensors = joined({{"post_attention_norm", "post_self_attn_layernorm"}, {"post_ffw_norm", "post_mlp_layernorm"}},
                       kFusedGate),
     .complete = complete_glm4},
    {.name = "glm4moe",
     .model_type = "glm4_moe",
     .class_name = "Glm4MoeForCausalLM",
     .has_experts = true,
     .gating = 2,
     .fields = {kRmsEpsilon,
                kChosen,
                {"expert_count", "n_routed_experts"},
                {"expert_shared_count", "n_shared_experts"},
                {"expert_feed_forward_length", "moe_intermediate_size"},
                {"leading_dense_block_count", "first_k_dense_replace"},
                {"expert_weights_scale", "routed_scaling_factor"},
                {"expert_weights_norm", "norm_topk_prob"},
                {"expert_group_count", "n_group"},
                {"expert_group_used_count", "topk_group"}},
     .tensors = joined({{"post_attention_norm", "post_attention_layernorm"},
                        {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                        {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                        {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
                        {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"}},
                       kExperts),
     .complete = complete_glm4_moe},
    {.name = "gpt-oss",
     .model_type = "gpt_oss",
     .class_name = "GptOssForCausalLM",
     .has_experts = true,
     .fields = {kRmsEpsilon,
                kWindow,
                kChosen,
                {"expert_count", "num_local_experts"},
                {"expert_feed_forward_length", "intermediate_size"}},
     .tensors = joined({{"ffn_gate_inp", "mlp.router"},
                        {"post_attention_norm", "post_attention_layernorm"},
                        {"attn_sinks.weight", "self_attn.sinks"}},
                       kExperts),
     .complete = complete_gpt_oss},
};

} // namespace

const std::vector<GgufArchitecture>& gguf_architectures() {
    return kArchitectures;
}

GgufMetadata::GgufMetadata(const GgufFile& file) : file_(file) {
    const Json* name = find("general.architecture");
    std::string supported;
    for (const GgufArchitecture& each : gguf_architectures()) {
        if (name != nullptr && *name == each.name) {
            const Json* experts = find(fmt::format("{}.expert_count", each.name));
            architecture_ = &each;
            if (each.has_experts == (experts != nullptr && *experts != 0)) return;
        }
        if (!supported.ends_with(each.name)) supported += fmt::format("{}{}", supported.empty() ? "" : ", ", each.name);
    }
    if (architecture_ != nullptr && architecture_->has_experts) required("expert_count");
    if (architecture_ != nullptr) refuse_other("expert_count", 0);
    refuse(fmt::format("general.architecture is {}; supported: {}", name ? shown_value(*name) : "missing", supported));
}

void GgufMetadata::refuse(const std::string& reason) const {
    throw BadFile(file_.name + ": " + reason);
}

const Json* GgufMetadata::find(const std::string& key) const {
    const auto at = file_.metadata.find(key);
    return at == file_.metadata.end() ? nullptr : &*at;
}

const Json* GgufMetadata::field(std::string_view key) const {
    return find(fmt::format("{}.{}", architecture_->name, key));
}

const Json& GgufMetadata::required(std::string_view key) const {
    const Json* value = field(key);
    if (value == nullptr) refuse(fmt::format("'{}.{}' is missing", architecture_->name, key));
    return *value;
}

const TensorView* GgufMetadata::tensor(std::string_view name) const {
    for (const TensorFile& part : file_.parts)
        if (const auto at = std::ranges::find(part.tensors, name, &TensorView::name); at != part.tensors.end())
            return &*at;
    return nullptr;
}

void GgufMetadata::refuse_other(std::string_view key, const Json& neutral) const {
    const Json* value = field(key);
    if (value && *value != neutral)
        refuse(fmt::format("'{}.{}' is {}, which is not supported", architecture_->name, key, shown_value(*value)));
}

} // namespace entrodraft::model
