// Finds the tokens that end a text in a GGUF file, as llama.cpp finds them: by metadata keys, and by the tokens' names.
// Called by gguf_model.
#pragma once

#include "model/files/gguf_architectures.h"

#include <cstdint>
#include <vector>

namespace entrodraft::model {

// Returns the token of the key eos, if it is among them, and then the others in order. Throws BadFile.
std::vector<std::uint64_t> gguf_end_tokens(const GgufMetadata& metadata);

} // namespace entrodraft::model
