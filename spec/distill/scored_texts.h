// Converts scored texts to tensors of a safetensors file, and back. Called by the command distill.
#pragma once

#include "model/files/checkpoint.h"
#include "model/torch/trainer.h"

#include <string>
#include <vector>

namespace entrodraft::spec {

using model::torch::ScoredText;

// Texts to learn from, and texts of other prompts to measure on.
struct ScoredTexts {
    std::string description; // how they were made, JSON
    std::vector<ScoredText> learned, held_out;
};

// Pure.
std::vector<model::TensorBytes> to_tensors(const ScoredTexts& texts);
// Throws BadFile if the file holds anything else, or token ids of `vocab_size` and above.
ScoredTexts scored_texts(const model::Checkpoint& file, const std::string& name, int vocab_size);

// Text as a tensor, and back; "" if the file has no tensor of that name.
model::TensorBytes text_tensor(const std::string& name, const std::string& text);
std::string text_of(const model::Checkpoint& file, const std::string& name);

} // namespace entrodraft::spec
