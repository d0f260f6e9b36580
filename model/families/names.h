// Knows the names of a checkpoint's tensors: the family's stems, with the prefix that this checkpoint uses. It reads
// headers only, except in untie_stored_head(). Called by model/weights/layer_plan, which describes the tensors.
#pragma once

#include "model/families/config.h"
#include "model/families/stems.h"
#include "model/files/checkpoint.h"

#include <functional>
#include <string>
#include <string_view>

namespace entrodraft::model {

// The tensors of a linear layer or a norm. With an empty name, the model does not have that tensor.
struct TensorNames {
    std::string weight;
    std::string bias;
    std::string second_bias = {}; // added to the bias
};

struct ModelNames {
    TensorStems stems;
    std::string prefix;
    TensorNames embedding;
    TensorNames positions; // learned positions, and computed ones that are stored
    TensorNames final_norm;
    TensorNames head;                              // the embedding's own name where the two are tied
    bool has_joint_experts = false;                // one tensor for all experts of a layer
    bool transposed_experts = false;               // these are [n_experts, in, out]
    std::function<bool(std::string_view)> ignores; // tensors that a file may hold although nothing reads them

    std::string layer_prefix(int layer) const;
    std::string expert_prefix(int layer, int expert) const;
};

// Returns "PREFIXstem.weight" and, if asked for, "PREFIXstem.bias"; empty for an empty stem.
TensorNames tensor_names(const std::string& prefix, std::string_view stem, bool has_bias);
// True where the config's norms have a bias.
bool norm_has_bias(const ModelConfig& config);

// Uses the prefix of the checkpoint's names. For an empty checkpoint, it is the family's first prefix.
ModelNames names_of(const ModelConfig& config, const Checkpoint& checkpoint);

// If config ties head and embedding but the checkpoint stores both, with different values, unties them, as transformers
// does from release 5, and returns true. Reads both tensors. Loading a decoder does this. Code that computes with a
// config before that calls it first.
bool untie_stored_head(ModelConfig& config, const Checkpoint& checkpoint);

} // namespace entrodraft::model
