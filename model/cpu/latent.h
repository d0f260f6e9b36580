// The parts of latent attention (DeepSeek-V2) before and after attention itself, for one thread of the team. Queries
// are mapped to the space of the cached vectors, and values are made from the attended vectors. So the cache is read
// once for all heads, and no pass expands its vectors. Called by cpu/ops.
#pragma once

#include "model/cpu/workspace.h"

namespace entrodraft::model {

// Returns the queries, [own query heads][head_dim], from the output of the layer's first matrix. If its front has
// vectors of queries, the queries are made from them. A barrier comes first.
Activations latent_queries(CpuWorkspace& workspace, const PassContext& context, const HeldWeights& layer,
                           Activations vectors);
// Returns the vectors of keys and values, each followed by the key that will be rotated.
Activations key_value_vectors(const CpuWorkspace& workspace, Activations vectors);
// Returns queries in the form of cached keys, [own query heads][key_dim()]. A barrier comes before and after.
Activations absorb(CpuWorkspace& workspace, const PassContext& context, const PassLayout& layout, int layer,
                   Activations queries);
// Returns values, [own query heads][value_dim], from attended vectors. A barrier comes first, and must follow.
Activations expand(CpuWorkspace& workspace, const PassContext& context, int layer, Activations vectors);

} // namespace entrodraft::model
