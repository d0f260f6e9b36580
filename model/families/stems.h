// Here families name the tensors of their checkpoints, without the prefix, and without ".weight" and ".bias". The
// config says which tensors have a bias. An empty stem means that the family does not have the tensor.
// model/weights/layer_plan.cpp has the shape of each tensor, and the part that a rank has of it.
#pragma once

#include <string_view>
#include <vector>

namespace entrodraft::model {

// The order of the rows of a fused query-key-value matrix.
enum class QkvForm {
    separate, // three matrices
    stacked,  // all query heads, all key heads, all value heads
    grouped,  // by key head: its query heads, its key, its value
};

struct LayerStems {
    std::string_view attention_norm = {};                            // before the attention, or after it (post_norm)
    std::string_view mlp_norm = {};                                  // the same for the MLP; empty where it is shared
    std::string_view after_attention_norm = {}, after_mlp_norm = {}; // sandwich
    std::string_view query = {}, key = {}, value = {};               // or, instead of the three,
    std::string_view qkv = {};                                       // all of them in one
    std::string_view query_norm = {}, key_norm = {};
    std::string_view sinks = {}; // the whole name
    std::string_view output = {};
    std::string_view gate = {}, up = {}; // or, instead of the two,
    std::string_view gate_up = {};       // both in one, gate first
    std::string_view down = {};
    // Attention to a source, in the decoder of an encoder-decoder model.
    std::string_view cross_norm = {}, cross_query = {}, cross_key = {}, cross_value = {}, cross_output = {};
    // Latent attention, in addition to `query`. With query_down, `query` reads the output of query_down.
    std::string_view query_down = {}, query_down_norm = {}, key_value_down = {}, key_value_down_norm = {};
    std::string_view key_value_up = {};
    // Linear attention, in place of query, key, value and output. Either two matrices in groups by key head:
    std::string_view linear_in = {}, linear_gates = {};
    // or these: all queries, keys and values; the values' gates; and two numbers of each value head.
    std::string_view linear_qkv = {}, linear_value_gates = {}, linear_steps = {}, linear_decays = {};
    std::string_view linear_convolution = {};
    std::string_view linear_decay = {}, linear_decay_bias = {}; // whole names
    std::string_view linear_norm = {}, linear_output = {};
    // A layer with experts, in place of gate, up and down.
    std::string_view router = {};
    std::string_view router_correction = {}; // the whole name
    std::string_view shared_gate = {}, shared_up = {}, shared_down = {}, shared_scale = {};
    // Whole names of the tensors of all experts together; else each expert has an ExpertStems.
    std::string_view expert_gate_up = {}, expert_down = {};
};

// One expert, whose matrices are tensors of their own.
struct ExpertStems {
    std::string_view gate = {}, up = {}, down = {};
};

struct TensorStems {
    // After the prefix.
    std::string_view embedding, positions = {}, project_in = {}, project_out = {}, final_norm = {};
    std::string_view embedding_norm = {}, relative_bias = {};
    std::vector<std::string_view> embedding_aliases = {}; // alternative names of it
    std::string_view head = "lm_head";
    std::string_view head_bias = {};    // the whole name; empty: the head's own bias. Zeros where a file lacks it
    std::string_view layers = "layers"; // after the prefix; then comes the layer's number
    LayerStems layer = {};
    std::string_view experts = "mlp.experts"; // after a layer's prefix; then comes the expert's number
    ExpertStems expert = {};
    QkvForm qkv = QkvForm::separate;
    bool transposed = false;                    // the layers' matrices are stored [in, out]
    bool transposed_experts = false;            // the same for all experts together, where they are not quantised
    std::vector<std::string_view> ignored = {}; // beginnings and endings of names that are not read
    bool ignores_further_layers = false;        // layers after n_layers: a draft head's
};

} // namespace entrodraft::model
