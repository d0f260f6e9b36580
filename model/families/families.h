// What a model family is made of: how its config reads and what its tensors are called. No arithmetic. A family is one
// file, which CMake finds: families/NAME.cpp, without a header, defines NAME_family().
#pragma once

#include "model/families/fields.h"
#include "model/families/stems.h"

#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

struct FamilyDescription {
    std::string model_type;                 // of config.json
    std::vector<std::string> architectures; // that decode text, old spellings too
    // Fills the config from its fields. Throws BadFile.
    void (*read)(const Fields& fields, ModelConfig& config) = nullptr;
    // Prefixes that the body's tensors may have, in the order in which they are looked for.
    std::vector<std::string> prefixes;
    TensorStems (*stems)(const ModelConfig& config) = nullptr;
    std::vector<std::string> other_types = {}; // model types of the same arithmetic and names
    // The model type of one that reads images too, whose text_config has the fields; of its architectures too.
    std::string multimodal_type = {};
};

// In the order of the files' names.
std::vector<FamilyDescription> families_of_files();
const std::vector<FamilyDescription>& families();
// Throws std::invalid_argument where there is no such family.
const FamilyDescription& describe(const std::string& model_type);

// ---- what several families share ----

// Llama's names, which Mistral, Qwen and Gemma have taken over.
TensorStems llama_stems(const ModelConfig& config);
// Llama's arithmetic: RMSNorm, SwiGLU, rotary positions; without biases.
void read_llama_like(const Fields& fields, ModelConfig& config);
// What Gemma's generations have in common.
void read_gemma_like(const Fields& fields, ModelConfig& config);
// BART's names and arithmetic, which mBART, Pegasus and Marian vary. Of the encoder too, as all stems.
TensorStems bart_stems(const ModelConfig& config);
void read_bart_like(const Fields& fields, ModelConfig& config);
// Experts of Qwen2-MoE and those after it, in all layers but some, and their names: each stored by itself, or all of a
// layer together.
void read_experts(const Fields& fields, int default_experts, int default_chosen, int default_size, ModelConfig& config);
void read_n_chosen(const Fields& fields, int default_value, ModelConfig& config); // n_experts are known
void add_expert_stems(TensorStems& stems);
// DeepSeek's, which GLM has taken over: behind the first layers, beside one or more that all rows go through.
struct LateExperts { // where fields are missing
    int n_experts, n_chosen, intermediate_size, n_shared, n_dense_layers;
    float scale = 1;
    int n_groups = 1, n_chosen_groups = 1;
};
void read_late_experts(const Fields& fields, const LateExperts& defaults, ModelConfig& config);
void add_late_expert_stems(TensorStems& stems);
void read_sigmoid_router(const Fields& fields, ModelConfig& config); // of DeepSeek-V3; experts are read
// DeepSeek's attention, sizes and norms.
void read_latent_attention(const Fields& fields, int default_query_rank, ModelConfig& config);
TensorStems latent_stems(const ModelConfig& config);
// Qwen3-Next's layers, which Qwen3.5 has taken over, without MLP and experts.
void read_gated_layers(const Fields& fields, ModelConfig& config);
// Qwen's sliding windows: from a layer on, if they are in use.
void read_late_windows(const Fields& fields, ModelConfig& config);

} // namespace entrodraft::model
