// What a draft is worth: the speed-up that its acceptance gives at the costs of its passes, and what acceptance a
// training that has only begun is going to reach. Pure; called by the command distill.
#pragma once

#include "spec/distill/training.h"
#include "spec/protocol/stats.h"

#include <span>

namespace entrodraft::spec {

// Over plain decoding, where each drafted token is accepted with probability alpha and drafts have the best length that
// the costs tell of.
struct ExpectedSpeedup {
    int drafted = 0;
    double speedup = 1; // at least; 1: nothing is drafted
};
ExpectedSpeedup expected_speedup(double alpha, const Costs& costs);

// `figure` of Evaluation, a share that is to rise to 1, after so many steps: what is missing to 1 falls as a power of
// the steps, through the evaluations behind the first quarter of those that were made. At least the greatest of them.
double predicted_share(std::span<const Evaluation> evaluations, double Evaluation::*figure, int steps);

// Of the costs of several drafts with one target those that are the target's: the median over them, in all. A machine
// that was slower for a while then says nothing against the draft that it was measured with.
void share_target_costs(std::span<Costs> costs);

} // namespace entrodraft::spec
