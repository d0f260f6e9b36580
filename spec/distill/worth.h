// Computes the speed-up that a draft gives, from its acceptance and the costs of passes. Pure; called by the command
// distill.
#pragma once

#include "spec/protocol/stats.h"

namespace entrodraft::spec {

// The speed-up over plain decoding, if each drafted token is accepted with probability alpha and drafts have the best
// length for which costs are known.
struct ExpectedSpeedup {
    int drafted = 0;
    double speedup = 1; // at least 1; 1: nothing is drafted
};
ExpectedSpeedup expected_speedup(double alpha, const Costs& costs);

} // namespace entrodraft::spec
