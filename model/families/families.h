// What a model family is made of: how its config reads and how its tensors are called. One file a family, no
// arithmetic. To add one: its file, its line here and its line in families.cpp.
#pragma once

#include "model/families/fields.h"
#include "model/families/names.h"

#include <span>
#include <string>
#include <vector>

namespace entrodraft::model {

struct FamilyDescription {
    Family family{};
    std::string model_type;                 // of config.json
    std::vector<std::string> architectures; // that decode text, old spellings too
    // Fills the config from its fields. Throws BadFile.
    void (*read)(const Fields& fields, ModelConfig& config) = nullptr;
    // Prefixes that the body's tensors may have, in the order in which they are looked for.
    std::vector<std::string> prefixes;
    ModelNames (*names)(const ModelConfig& config, const std::string& prefix) = nullptr;
};

FamilyDescription gpt2_family();
FamilyDescription opt_family();
FamilyDescription gpt_neox_family();
FamilyDescription llama_family();
FamilyDescription mistral_family();
FamilyDescription qwen2_family();
FamilyDescription qwen3_family();
FamilyDescription falcon_family();
FamilyDescription gemma_family();
FamilyDescription gemma2_family();
FamilyDescription phi_family();
FamilyDescription phi3_family();

// All of them. Local.
std::span<const FamilyDescription> families();
const FamilyDescription& describe(Family family);

// ---- what several families share ----

TensorNames weight_only(const std::string& stem);
TensorNames with_bias(const std::string& stem, bool has_bias = true);
// Llama's names, which Mistral, Qwen and Gemma have taken over.
ModelNames llama_names(const ModelConfig& config, const std::string& prefix);
LayerNames llama_layer(const ModelConfig& config, const std::string& prefix, int index);
// Llama's arithmetic: RMSNorm, SwiGLU, rotary positions; without biases.
void read_llama_like(const Fields& fields, ModelConfig& config);
// Qwen's sliding windows: from a layer on, if they are in use.
void read_late_windows(const Fields& fields, ModelConfig& config);

} // namespace entrodraft::model
