// The parts of a model family: it reads the config and names the tensors. It does no arithmetic. A family is one file
// without a header, families/NAME.cpp. It defines NAME_family(), and CMake finds it.
#pragma once

#include "model/families/fields.h"
#include "model/families/stems.h"

#include <string>
#include <vector>

namespace entrodraft::model {

struct FamilyDescription {
    std::string model_type;                 // of config.json
    std::vector<std::string> architectures; // architectures that decode text, with old spellings
    // Fills the config from its fields. Throws BadFile.
    void (*read)(const Fields& fields, ModelConfig& config) = nullptr;
    // Prefixes that the body's tensors may have, in the order in which they are looked for.
    std::vector<std::string> prefixes;
    TensorStems (*stems)(const ModelConfig& config) = nullptr;
    std::vector<std::string> other_types = {}; // model types of the same arithmetic and names
    // Model type of the variant that reads images too. Its text_config has the fields; its architectures count too.
    std::string multimodal_type = {};
};

// Returns the families in the order of the files' names.
std::vector<FamilyDescription> families_of_files();
const std::vector<FamilyDescription>& families();
// Throws std::invalid_argument where there is no such family.
const FamilyDescription& describe(const std::string& model_type);

// ---- parts that several families share ----

// Llama's names, which Mistral, Qwen and Gemma use too.
TensorStems llama_stems(const ModelConfig& config);
// Llama's arithmetic: RMSNorm, SwiGLU, rotary positions; without biases.
void read_llama_like(const Fields& fields, ModelConfig& config);
// The parts that Gemma's generations have in common.
void read_gemma_like(const Fields& fields, ModelConfig& config);
// BART's names and arithmetic, which mBART, Pegasus and Marian vary. Like all stems, they include the encoder's.
TensorStems bart_stems(const ModelConfig& config);
void read_bart_like(const Fields& fields, ModelConfig& config);
// Experts of Qwen2-MoE and later families, in all layers but some, and their names. Each is stored by itself, or all
// experts of a layer together.
void read_experts(const Fields& fields, int default_experts, int default_chosen, int default_size, ModelConfig& config);
void read_n_chosen(const Fields& fields, int default_value, ModelConfig& config); // n_experts are known
void add_expert_stems(TensorStems& stems);
// DeepSeek's experts, which GLM uses too: in the later layers, with one or more shared ones that all rows go through.
struct LateExperts { // defaults for missing fields
    int n_experts, n_chosen, intermediate_size, n_shared, n_dense_layers;
    float scale = 1;
    int n_groups = 1, n_chosen_groups = 1;
};
void read_late_experts(const Fields& fields, const LateExperts& defaults, ModelConfig& config);
void add_late_expert_stems(TensorStems& stems);
void read_sigmoid_router(const Fields& fields, ModelConfig& config); // of DeepSeek-V3; call it after experts are read
// DeepSeek's attention, sizes and norms.
void read_latent_attention(const Fields& fields, int default_query_rank, ModelConfig& config);
TensorStems latent_stems(const ModelConfig& config);
// Qwen3-Next's layers, which Qwen3.5 uses too, without MLP and experts.
void read_gated_layers(const Fields& fields, ModelConfig& config);
// Qwen's sliding windows: from a layer on, if they are in use.
void read_late_windows(const Fields& fields, ModelConfig& config);

} // namespace entrodraft::model
