// How checkpoints of the Llama family name their tensors. Names only, no arithmetic. Called by names.
#pragma once

#include "entrodraft/model/families/names.h"

#include <string_view>

namespace entrodraft::model {

ModelNames llama_names(bool tied_embeddings);
LayerNames llama_layer(int index);

// Whether a tensor may be left unread: rotary frequencies, which old files carry, and a head of its own, which is
// either read or, where it is tied, a copy of the embedding. Local.
bool llama_ignores(std::string_view tensor_name);

} // namespace entrodraft::model
