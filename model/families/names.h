// The names a checkpoint's tensors go by, whatever the family, and the check that they are all there in the shapes
// that the config calls for. Reads headers only, no weights. Called by the decoder and by inspect.
#pragma once

#include "entrodraft/model/config.h"
#include "entrodraft/model/safetensors.h"

#include <string>
#include <string_view>

namespace entrodraft::model {

// Matrices are stored [out, in], norms [hidden_size].
struct LayerNames {
    std::string input_norm;
    std::string query;  // [n_heads * head_dim, hidden_size]
    std::string key;    // [n_kv_heads * head_dim, hidden_size]
    std::string value;  // [n_kv_heads * head_dim, hidden_size]
    std::string output; // [hidden_size, n_heads * head_dim]
    std::string post_attention_norm;
    std::string gate; // [intermediate_size, hidden_size]
    std::string up;   // [intermediate_size, hidden_size]
    std::string down; // [hidden_size, intermediate_size]
};

struct ModelNames {
    std::string embedding; // [vocab_size, hidden_size]
    std::string final_norm;
    std::string head;                  // [vocab_size, hidden_size]; the embedding's own name where the two are tied
    LayerNames (*layer)(int index);    // from 0
    bool (*ignores)(std::string_view); // tensors that a file may hold and nothing reads
};

// Local.
ModelNames names_of(const ModelConfig& config);

// Throws BadFile that names the tensor where one is missing, has a shape other than the config calls for or a type
// that is not F32, F16 or BF16, or where the file holds a tensor that this model would leave out. Local.
void check_shapes(const ModelConfig& config, const Checkpoint& checkpoint);

} // namespace entrodraft::model
