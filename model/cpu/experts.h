// Layers with experts, for one thread of the team. All rows of an expert are multiplied together. So a pass reads each
// expert that some row needs, and reads it once. A row adds up its experts in the order of their numbers, so its bits
// do not depend on the rows next to it. Called by cpu/ops.
#pragma once

#include "model/cpu/workspace.h"

namespace entrodraft::model {

// Chooses each row's experts. `from` is the thread's own, or a barrier came after it was made. Has a barrier inside.
void choose_experts(CpuWorkspace& workspace, const PassContext& context, const HeldWeights& layer, Activations from);
// Computes the inner activations of the experts' MLPs for their rows. A barrier must follow.
void multiply_into_experts(CpuWorkspace& workspace, const PassContext& context, const HeldWeights& layer,
                           Activations from);
// Adds the experts' outputs, times the rows' weights, to this thread's columns of x.
void add_from_experts(CpuWorkspace& workspace, const PassContext& context, const HeldWeights& layer, Activations x);
// Returns the shared expert's scale for a row, in [0, 1], for ExpertsConfig::gated_shared.
float shared_scale(CpuWorkspace& workspace, int row);

} // namespace entrodraft::model
