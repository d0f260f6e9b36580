// Which tokens end a text, as llama.cpp takes it from a GGUF file: by keys, and by what tokens are called. Called by
// gguf_model.
#pragma once

#include "model/files/gguf_architectures.h"

#include <cstdint>
#include <vector>

namespace entrodraft::model {

// The token of the key eos, where it is among them, and then the others in order. Throws BadFile.
std::vector<std::uint64_t> gguf_end_tokens(const GgufMetadata& metadata);

} // namespace entrodraft::model
