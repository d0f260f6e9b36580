// Linear attention as gated DeltaNet (Yang et al. 2024), for one thread of the team. Each thread has its own key heads
// with their value heads, states and inputs. It works row by row, in the recurrent form. So a row's bits depend on its
// text alone. They depend neither on the rows next to it nor on how the text was cut into passes. Called by cpu/ops.
#pragma once

#include "model/cpu/workspace.h"

namespace entrodraft::model {

// Returns the readings of a layer's states by the rows, [own value heads][value_dim], normed and gated. `projected` is
// Role::qkv's product. A barrier comes first, and must follow.
Activations delta_net(CpuWorkspace& workspace, const PassContext& context, int layer, Activations projected);

} // namespace entrodraft::model
