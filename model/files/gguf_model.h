// Describes a GGUF file's model as a transformers checkpoint: a config.json, and names of tensors. Called by config and
// checkpoint.
#pragma once

#include "model/files/gguf_file.h"

namespace entrodraft::model {

// Returns the config.json that such a model would have. Throws BadFile that names unsupported parts.
nlohmann::json gguf_config(const GgufFile& file);
// Other ways in which a file's weights differ from such a checkpoint's.
struct GgufDifferences {
    bool pairs_neighbours = false;   // queries and keys lie so that neighbouring numbers are rotated together
    bool norms_are_whole = false;    // norm weights are not stored less one
    std::vector<float> pair_factors; // factors of rotary frequencies; empty: none
    double memory_bits = 0, gpu_memory_bits = 0; // as in Quantization; 0: nothing is quantised
};
GgufDifferences gguf_differences(const GgufFile& file);
// Renames the tensors. A tensor of all experts becomes one for each expert. Tensors that only repeat the config are
// dropped. Throws BadFile.
std::vector<TensorFile> gguf_tensors(GgufFile file);

} // namespace entrodraft::model
