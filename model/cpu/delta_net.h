// Linear attention as gated DeltaNet has it (Yang et al. 2024), as one thread of the team takes part in it: each thread
// has key heads of its own, with their value heads, states and inputs. Row by row, in the recurrent form, so that a
// row's bits depend on its text alone: not on the rows beside it, nor on how the text was cut into passes. Called by
// cpu/ops.
#pragma once

#include "model/cpu/workspace.h"

namespace entrodraft::model {

// What the rows read of a layer's states, [own value heads][value_dim], normed and gated; `projected` is
// Role::qkv's product. A barrier comes first, and must follow.
Activations delta_net(CpuWorkspace& workspace, const PassContext& context, int layer, Activations projected);

} // namespace entrodraft::model
