// What latent attention (DeepSeek-V2) has beside attention itself, as one thread of the team takes part in it: queries
// are made to fit the vectors that the cache holds, and values are made of what is attended of these. So the cache is
// read once for all heads, and nothing is made of its vectors pass after pass. Called by cpu/ops.
#pragma once

#include "model/cpu/workspace.h"

namespace entrodraft::model {

// Of what the layer's first matrix makes of the rows: the queries, [own query heads][head_dim], made of the vectors in
// front where there are such. A barrier comes first.
Activations latent_queries(CpuWorkspace& workspace, const PassContext& context, const HeldWeights& layer,
                           Activations vectors);
// And the vectors of keys and values, with the keys that are rotated behind them.
Activations key_value_vectors(const CpuWorkspace& workspace, Activations vectors);
// Queries as keys are cached, [own query heads][key_dim()]. A barrier comes before and after.
Activations absorb(CpuWorkspace& workspace, const PassContext& context, const PassLayout& layout, int layer,
                   Activations queries);
// Values, [own query heads][value_dim], of attended vectors. A barrier comes first, and must follow.
Activations expand(CpuWorkspace& workspace, const PassContext& context, int layer, Activations vectors);

} // namespace entrodraft::model
