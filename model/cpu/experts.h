// Layers with experts, as one thread of the team takes part in them. The rows of an expert are multiplied together, so
// that a pass reads the union of its rows' experts, each once; and a row adds up its experts in the order of their
// numbers, so that its bits do not depend on the rows beside it. Called by cpu/ops.
#pragma once

#include "model/cpu/workspace.h"

namespace entrodraft::model {

// Chooses each row's experts. `from` is the thread's own, or behind a barrier. A barrier comes before it ends.
void choose_experts(CpuWorkspace& workspace, const PassContext& context, const HeldWeights& layer, Activations from);
// What the experts' MLPs make inside of their rows. A barrier must follow.
void multiply_into_experts(CpuWorkspace& workspace, const PassContext& context, const HeldWeights& layer,
                           Activations from);
// Adds the experts' outputs, times the rows' weights, to x. Of this thread's columns.
void add_from_experts(CpuWorkspace& workspace, const PassContext& context, const HeldWeights& layer, Activations x);
// The shared expert's part of each row, in [0, 1]: of ExpertsConfig::gated_shared.
float shared_scale(CpuWorkspace& workspace, int row);

} // namespace entrodraft::model
