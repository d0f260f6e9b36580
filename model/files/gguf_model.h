// What a GGUF file says of a model, in the words of a transformers checkpoint: a config.json, and names of tensors.
// Called by config and checkpoint.
#pragma once

#include "model/files/gguf_file.h"

#include <string>

namespace entrodraft::model {

// The config.json that such a model would have. Throws BadFile that names what is not supported.
nlohmann::json gguf_config(const GgufFile& file);
// What else a file's weights are not as such a checkpoint's are.
struct GgufDifferences {
    bool pairs_neighbours = false;   // queries and keys lie so that neighbouring numbers are rotated together
    bool norms_are_whole = false;    // norm weights are not stored less one
    std::vector<float> pair_factors; // of rotary frequencies; empty: none
    double memory_bits = 0, gpu_memory_bits = 0; // as Quantization has them; 0: nothing is quantised
};
GgufDifferences gguf_differences(const GgufFile& file);
// Renames the tensors; those of all experts become one for each, and those that only say what the config says are
// dropped. Throws BadFile.
std::vector<TensorFile> gguf_tensors(GgufFile file);

} // namespace entrodraft::model
